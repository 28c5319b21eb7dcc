"""Text files to ids to batches."""
