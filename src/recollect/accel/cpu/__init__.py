"""Fast forms in C."""
