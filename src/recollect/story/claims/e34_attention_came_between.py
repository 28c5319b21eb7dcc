"""E34: Between sequence-to-sequence models (2014) and the Transformer (2017) stand the attention models of 2015.

中文：在序列到序列模型（2014）与 Transformer（2017）之间，有 2015 年的注意力模型。
Seed: 004_87792308dac9c34b.txt:45
Budget: seconds
Says: Because sequence-to-sequence was limited, Transformers came into use.
说法：由于序列到序列的局限，人们转而使用 Transformer。
Expected: in the line of models: sutskever 2014, bahdanau and luong 2015, transformer 2017
预期：在模型谱系中：sutskever 2014，bahdanau 与 luong 2015，transformer 2017
Rule: holds if the register of models has this order, else does not hold
Exact: holds
"""

from __future__ import annotations

from itertools import pairwise

from recollect.models.line import LINE
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual

ORDER = (("sutskever",), ("bahdanau", "luong"), ("transformer",))


def run(budget: Budget) -> Result:
    years = {station.name: station.year for station in LINE}
    found = [[years[name] for name in names] for names in ORDER]
    errors = {"pairs out of order": float(sum(max(a) >= min(b) for a, b in pairwise(found)))}
    words = ", ".join(f"{name} {years[name]}" for names in ORDER for name in names)
    return identity(
        errors,
        0.0,
        Control(Bilingual("years between", "相隔年数"), float(found[-1][0] - found[0][0])),
        Bilingual(f"{words}.", f"{words}。"),
    )
