"""E29: A reset gate of 0 removes the old state from the candidate only; the update gate decides about the rest.

中文：重置门为 0 只是把旧状态从候选中去掉；其余由更新门决定。
Seed: 003_d30a3ba1164faeec.txt:161
Budget: seconds
Says: With R = 0 the old state has practically no effect.
说法：R 为 0 时旧状态几乎无效。
Expected: as measured for C36
预期：与 C36 的实测一致
Rule: holds where C36 holds if the update gate is shut
Cites: C36 holds if
"""
