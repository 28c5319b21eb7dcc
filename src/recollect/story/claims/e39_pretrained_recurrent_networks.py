"""E39: Recurrent networks were pretrained with success before the Transformer: ULMFiT, ELMo, and the LSTM in GPT's own table.

中文：在 Transformer 之前，循环网络的预训练就已成功：ULMFiT、ELMo，以及 GPT 论文表中的 LSTM。
Seed: 004_87792308dac9c34b.txt:99
Budget: minutes
Says: Recurrent networks are hard to pretrain, and transfer little.
说法：循环网络难以预训练，迁移有限。
Expected: C81 does not hold. Radford et al. 2018, table 5: mean score 69.1 of a pretrained LSTM, 59.9 of a Transformer without pretraining, 74.7 with
预期：C81 不成立。Radford 等 2018 表 5：预训练的 LSTM 平均 69.1 分，不预训练的 Transformer 59.9 分，预训练后 74.7 分
Rule: holds where C81 does not hold
Cites: C81 does not hold
"""
