"""From files to batches: text, tokenizers, token files, batches."""
