"""C90: Attention came from vision research; or: it came from improving recurrent networks.

中文：注意力源于视觉研究；又说：注意力源于对循环网络的改进。
Seed: 003_d30a3ba1164faeec.txt:197, 003_d30a3ba1164faeec.txt:225
Budget: source
Expected: both, in two senses: the idea from vision; today's mechanism from Bahdanau et al. 2015, section 3.1, as the survey of Brauwers & Frasincar 2022 writes
预期: 两者皆可成立：思想来自视觉；今天的机制来自 Bahdanau 等 2015 第 3.1 节，见 Brauwers 与 Frasincar 2022 的综述
Rule: history, no experiment
"""
