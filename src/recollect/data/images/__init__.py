"""Pictures and captions to batches."""
