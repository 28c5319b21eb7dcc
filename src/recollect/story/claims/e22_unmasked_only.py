"""E22: Self-attention is insensitive to order only without a mask.

中文：只有不加掩码时，自注意力才对顺序不敏感。
Seed: 001_9b45f3fd679b11ad.txt:61
Budget: seconds
Says: Pure self-attention is completely insensitive to order.
说法：纯自注意力对顺序完全不敏感。
Expected: as measured for C59
预期：与 C59 的实测一致
Rule: holds where C59 holds if there is neither a mask nor a position
Cites: C59 holds if
"""
