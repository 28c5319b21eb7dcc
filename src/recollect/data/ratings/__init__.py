"""Ratings of items by users, to batches."""
