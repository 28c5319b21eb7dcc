"""Metrics by their published definitions."""
