"""The training loop and everything it needs to resume."""
