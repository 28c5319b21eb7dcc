"""E15: A Transformer encoder attends to both sides at once; reading from both ends and concatenating is a bidirectional RNN.

中文：Transformer 编码器同时注意两侧；从两端分别读再拼接的是双向 RNN。
Seed: 000_56d5b8bda4e4cf77.txt:205
Budget: seconds
Says: A Transformer reads from left to right and from right to left, and concatenates.
说法：Transformer 先从左到右读、再从右到左读，然后拼接。
Expected: as measured for C77
预期：与 C77 的实测一致
Rule: holds where C77 holds if there is one layer with a linear head
Cites: C77 holds if
"""
