"""Layers that remember a vector: RNN, GRU, LSTM."""
