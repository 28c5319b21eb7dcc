"""E14: A common context does not mean equal influence: it differs through the decoder's state and within the context.

中文：上下文相同不等于影响相同：影响因解码器状态以及上下文内部而不同。
Seed: 003_d30a3ba1164faeec.txt:189
Budget: seconds
Says: The same context gives each input the same influence on each output.
说法：上下文相同，则每个输入对每个输出的影响相同。
Expected: as measured for C45
预期：与 C45 的实测一致
Rule: holds where C45 does not hold
Cites: C45 does not hold
"""
