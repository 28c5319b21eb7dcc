"""A run is a folder; one module for each verb that works on it."""
