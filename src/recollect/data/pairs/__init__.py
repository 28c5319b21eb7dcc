"""Pairs of sequences to batches."""
