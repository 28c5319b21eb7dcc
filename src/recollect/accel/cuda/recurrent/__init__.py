"""Persistent kernels for RNN, GRU and LSTM."""
