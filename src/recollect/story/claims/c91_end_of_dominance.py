"""C91: The Transformer of 2017 ended the dominance of recurrent networks.

中文：2017 年的 Transformer 结束了循环网络的主导地位。
Seed: 003_d30a3ba1164faeec.txt:193, 004_87792308dac9c34b.txt:5
Budget: source
Expected: Vaswani et al. 2017, table 2: BLEU 28.4 (big) and 27.3 (base) English–German, 41.8 English–French, above all recurrent systems listed
预期: Vaswani 等 2017 表 2：英德 BLEU 28.4（big）与 27.3（base），英法 41.8，高于表中所有循环系统
Rule: history, no experiment
"""
