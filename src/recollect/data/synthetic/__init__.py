"""Generated data, and texts that need no download."""
