"""Complete models, one per file: config, parts, model."""
