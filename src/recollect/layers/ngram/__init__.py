"""Layers whose memory is the last few symbols: Markov chains and window networks."""
