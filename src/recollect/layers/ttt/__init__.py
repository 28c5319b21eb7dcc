"""Layers that remember weights which they train while they read: TTT."""
