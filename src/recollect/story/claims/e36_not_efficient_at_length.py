"""E36: Attention's cost grows with the square of the length: long sequences are its weak side.

中文：注意力的代价随长度平方增长：长序列正是它的弱点。
Seed: 004_87792308dac9c34b.txt:71
Budget: seconds
Says: A Transformer handles sequences of any length efficiently.
说法：Transformer 可以高效处理任意长度的序列。
Expected: as measured for C71 and C72
预期：与 C71、C72 的实测一致
Rule: holds where C71 holds, and C72 for some dependencies only
Cites: C71 holds, C72 holds if
"""
