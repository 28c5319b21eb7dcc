"""Named measures by their published definitions."""
