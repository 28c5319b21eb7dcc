"""E31: Attention returns a weighted sum of values; its weights are computed for each input, and only the projections are learned. Its cost comes on top.

中文：注意力返回 value 的加权和；权重随输入计算，学到的只是投影；计算量是增加而不是减少。
Seed: 003_d30a3ba1164faeec.txt:203, 003_d30a3ba1164faeec.txt:217
Budget: seconds
Says: Attention is a fully connected network that lowers computation, returns similarities and learns weights.
说法：注意力是全连接网络，能降低计算量，返回相似度，并学习权重。
Expected: as measured for C52, C53 and C54
预期：与 C52、C53、C54 的实测一致
Rule: holds where none of C52, C53 and C54 holds
Cites: C52 does not hold, C53 does not hold, C54 does not hold
"""
