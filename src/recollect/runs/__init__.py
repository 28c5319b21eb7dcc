"""A run is a folder; one module for each command that works on it."""
