"""A decode step recorded once and compiled to C."""
