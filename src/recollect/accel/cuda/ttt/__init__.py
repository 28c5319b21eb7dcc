"""Test-time training on a GPU: fused kernels in Triton."""
