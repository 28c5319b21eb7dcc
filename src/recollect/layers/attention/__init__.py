"""Layers that remember a list: all forms of attention."""
