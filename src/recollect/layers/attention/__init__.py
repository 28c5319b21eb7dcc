"""Layers that remember a list: attention in all its forms."""
