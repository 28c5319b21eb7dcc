"""Layers that remember the last few symbols: Markov chains and window networks."""
