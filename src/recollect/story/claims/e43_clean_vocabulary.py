"""E43: The example's word is 'great'; a misspelling would be a word of its own.

中文：例句中的词是 great；拼写错误会成为另一个词。
Seed: 003_d30a3ba1164faeec.txt:53, 003_d30a3ba1164faeec.txt:54
Budget: seconds
Says: greate
说法：greate
Expected: no generated example holds the misspelling
预期：生成的例句中没有这个错误拼写
Rule: holds if none of the built-in examples has it, else does not hold
Exact: holds
"""

from __future__ import annotations

from itertools import islice

from recollect.data.synthetic.label_generators import LABEL_TASKS
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity
from recollect.views.bilingual import Bilingual


def run(budget: Budget) -> Result:
    words = [word for name in ("apple", "kindness") for word in _words(name)]
    wrong = Control(Bilingual("words looked at", "检查的词数"), float(len(words)))
    return identity({Bilingual("misspelt words", "拼错的词"): float(words.count("greate"))}, 0.0, wrong)


def _words(name: str) -> list[str]:
    return str(list(islice(LABEL_TASKS[name].examples(), 2000))).lower().replace("'", " ").replace(",", " ").split()
