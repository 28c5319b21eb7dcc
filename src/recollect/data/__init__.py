"""From files to batches: text, tokenisers, token files, batches. Only `batches` and `adding` need torch."""
