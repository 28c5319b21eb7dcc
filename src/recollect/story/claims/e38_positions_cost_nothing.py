"""E38: Sinusoidal positions have no parameters, and parallelism costs none.

中文：正弦位置编码没有参数，并行也不消耗参数。
Seed: 004_87792308dac9c34b.txt:83
Budget: seconds
Says: Positional encoding is a main cause of size, and parallelism costs parameters.
说法：位置编码是参数多的主要原因，并行以参数为代价。
Expected: as measured for C75
预期：与 C75 的实测一致
Rule: holds where C75 does not hold
Cites: C75 does not hold
"""
