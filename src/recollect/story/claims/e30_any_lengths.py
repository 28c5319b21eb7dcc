"""E30: One RNN maps sequences of any two lengths: it reads the source and a separator, and then generates the target.

中文：一个 RNN 就能完成任意两种长度之间的映射：读入源序列与分隔符，然后生成目标。
Seed: 003_d30a3ba1164faeec.txt:167, 000_56d5b8bda4e4cf77.txt:54
Budget: seconds
Says: Only equal lengths; or only N to N, 1 to N and N to 1.
说法：只能等长；或只能 N 到 N、1 到 N、N 到 1。
Expected: as measured for C39
预期：与 C39 的实测一致
Rule: holds where C39 does not hold
Cites: C39 does not hold
"""
