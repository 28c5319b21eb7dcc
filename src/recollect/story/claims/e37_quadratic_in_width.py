"""E37: The parameters of a recurrent layer grow with the square of its width.

中文：循环层的参数随宽度平方增长。
Seed: 004_87792308dac9c34b.txt:81
Budget: seconds
Says: Parameters are in proportion to units and dimensions.
说法：参数数量与单元数和维度成正比。
Expected: as measured for C75
预期：与 C75 的实测一致
Rule: holds where C75 does not hold
Cites: C75 does not hold
"""
