"""Other people's weights: checkpoints in the layout of Hugging Face, read and written without transformers."""
