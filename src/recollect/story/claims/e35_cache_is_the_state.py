"""E35: A Transformer that generates is sequential, and its list of keys and values is its state.

中文：生成时 Transformer 是顺序的，键值列表就是它的状态。
Seed: 004_87792308dac9c34b.txt:65
Budget: seconds
Says: It has no hidden state and is not sequential.
说法：没有隐藏状态，也不是顺序的。
Expected: as measured for C73
预期：与 C73 的实测一致
Rule: holds where C73 holds if the sequence is known
Cites: C73 holds if
"""
