"""The layers, one file per idea, in the order of history."""
