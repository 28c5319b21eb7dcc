"""Looking inside: what a model computes while it reads, as named arrays, and the pictures that are drawn of them."""
