"""From files to batches: text, tokenizers, token files, batches. Only `batches` and `adding` need torch."""
