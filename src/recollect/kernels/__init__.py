"""Fast forms of layers: each equals a readable one, and is used where hardware and compiler allow it."""
