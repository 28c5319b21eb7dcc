"""E23: The reason for √k is the variance of the dot product, which is k.

中文：除以 √k 的理由是点积的方差为 k。
Seed: 001_9b45f3fd679b11ad.txt:97
Budget: seconds
Says: The reason is the growing length of the vectors.
说法：理由是向量长度随维度增长。
Expected: as measured for C63
预期：与 C63 的实测一致
Rule: holds where C63 holds
Cites: C63 holds
"""
