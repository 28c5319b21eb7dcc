"""E33: An LSTM mitigates vanishing gradients: they last as long as its forget gates stay open.

中文：LSTM 缓解梯度消失：遗忘门打开多久，梯度就保持多久。
Seed: 004_87792308dac9c34b.txt:21
Budget: seconds
Says: An LSTM solves vanishing gradients.
说法：LSTM 解决梯度消失。
Expected: as measured for C35
预期：与 C35 的实测一致
Rule: holds where C35 holds if the forget gates stay open
Cites: C35 holds if
"""
