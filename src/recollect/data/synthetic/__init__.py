"""Data that the package makes itself."""
