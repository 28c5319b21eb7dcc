"""Test-time training: layers whose memory is the weights of an inner model, trained during the forward pass."""
