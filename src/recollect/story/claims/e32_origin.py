"""E32: Both origins are told: the idea of attention from vision, today's mechanism from machine translation.

中文：两种来源都对：注意力的思想来自视觉，今天的机制来自机器翻译。
Seed: 003_d30a3ba1164faeec.txt:197, 003_d30a3ba1164faeec.txt:225
Budget: source
Says: In one place attention comes from vision, in another from improving recurrent networks.
说法：一处说源于视觉，另一处说源于改进循环网络。
Expected: see C90: Bahdanau et al. 2015, section 3.1; the survey of Brauwers and Frasincar 2022
预期：见 C90：Bahdanau 等 2015 第 3.1 节；Brauwers 与 Frasincar 2022 的综述
Rule: history, no experiment
"""
