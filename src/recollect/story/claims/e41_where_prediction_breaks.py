"""E41: From which step predictions deviate depends on the model and its window; sixteen is no border.

中文：预测从第几步开始偏离取决于模型及其窗口，16 步并不是界限。
Seed: 002_c6efc9a4698e0e4d.txt:70
Budget: seconds
Says: Predictions deviate strongly from 16 steps on.
说法：从 16 步开始出现较大偏差。
Expected: as measured for C5
预期：与 C5 的实测一致
Rule: holds where C5 holds if the window is short
Cites: C5 holds if
"""
