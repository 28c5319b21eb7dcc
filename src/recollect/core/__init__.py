"""The contract: memories, layers, what composes them, and what every floor above relies on."""
