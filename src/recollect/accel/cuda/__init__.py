"""Fast forms in CUDA C++."""
