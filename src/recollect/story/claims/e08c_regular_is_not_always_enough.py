"""E8c: That regular truncation is enough holds for short dependencies only: its gradient can have the wrong sign.

中文：固定截断够用只在依赖较短时成立：它的梯度符号可能是错的。
Seed: 002_c6efc9a4698e0e4d.txt:166
Budget: seconds
Says: Random truncation backfires; regular is enough.
说法：随机截断弄巧成拙，固定步长就够。
Expected: as measured for C31
预期：与 C31 的实测一致
Rule: holds where C31 holds only if dependencies are short
Cites: C31 holds if
"""
