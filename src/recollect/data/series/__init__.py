"""Tables of numbers over time to windows to batches."""
