"""Whole models, one per file: config, parts, whole."""
