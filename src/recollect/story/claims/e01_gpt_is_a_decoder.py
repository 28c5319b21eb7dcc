"""E1: GPT is a stack of decoder blocks alone, without an encoder and without attention to a source.

中文：GPT 只由解码器块堆叠而成，没有编码器，也没有对源序列的注意力。
Seed: 004_87792308dac9c34b.txt:57
Budget: seconds
Says: GPT consists of an encoder and a decoder.
说法：GPT 由编码器和解码器组成。
Expected: no cross-attention in the language model, and no output depends on later symbols; a translator has both parts
预期：语言模型中没有交叉注意力，输出也不依赖后面的符号；翻译模型则两部分都有
Rule: holds if both counts are 0 while a translator's is not, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.layers.attention.cross_attention import CrossAttention
from recollect.models.language import LanguageModel
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, looks_ahead
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    gpt = LanguageModel("transformer", 20, width=16, layers=2, heads=2).double().eval()
    translator = Translator("transformer", 20, 20, width=16, heads=2)
    ahead = looks_ahead(lambda ids: gpt(ids)[0], torch.randint(20, (2, 8)), 5)
    crossing = [sum(isinstance(m, CrossAttention) for m in model.modules()) for model in (gpt, translator)]
    errors = {
        Bilingual("attention to a source", "对源序列的注意力"): float(crossing[0]),
        Bilingual("outputs that see later symbols", "看到后文的输出"): float(ahead),
    }
    return identity(errors, 0.0, Control(Bilingual("in an encoder–decoder", "编码器-解码器中"), float(crossing[1])))
