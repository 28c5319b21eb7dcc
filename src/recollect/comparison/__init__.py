"""Comparisons of models on the same data within the same budget."""
