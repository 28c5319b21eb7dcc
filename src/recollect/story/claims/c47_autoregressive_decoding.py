"""C47: A decoder generates symbol by symbol, until the end symbol or the greatest length.

中文：解码器逐个生成符号，直到序列末端标记或最大长度为止。
Seed: 003_d30a3ba1164faeec.txt:173, 003_d30a3ba1164faeec.txt:179, 003_d30a3ba1164faeec.txt:182, 004_87792308dac9c34b.txt:37
Budget: seconds
Expected: greedy is beam search of width 1; its scores are those of one teacher-forced pass; all end at the end symbol or the limit; in the textbook's table greedy finds a string of 0.048 and misses one of 0.054; encoder and decoder are two calls, c = encoder(x) and y_i = decoder(c, s_1 … s_{i-1}), and the source is read once
预期：贪心搜索就是宽度为 1 的束搜索；其得分等于一次教师强制前向的得分；生成都止于结束符或长度上限；在教材的例表中，贪心找到概率 0.048 的串，错过 0.054 的串；编码与解码是两次调用，c = encoder(x)，y_i = decoder(c, s_1 … s_{i-1})，源序列只读一次
Rule: holds if all errors are at most 1e-9, else does not hold
Exact: holds
"""

from __future__ import annotations

import torch

from recollect.core.padding import pad
from recollect.generation.beam import Hypothesis, beam
from recollect.generation.log_probability import score
from recollect.generation.sampling import generate
from recollect.generation.settings import Search, Settings
from recollect.layers.ngram.markov import Markov
from recollect.models.language import LanguageModel
from recollect.models.translation import Translator
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

END, LIMIT = 0, 8
A, B, C, BEGIN = 1, 2, 3, 4
TABLE = {  # how often each continuation followed each prefix, of 1,000 strings
    (): {A: 500, B: 200, C: 200, END: 100},
    (A,): {A: 50, B: 200, C: 150, END: 100},
    (A, B): {A: 40, B: 40, C: 80, END: 40},
    (A, B, C): {B: 16, C: 16, END: 48},
    (A, C): {A: 15, B: 90, C: 30, END: 15},
    (A, C, B): {A: 9, B: 18, C: 9, END: 54},
}


def run(budget: Budget) -> Result:
    model = LanguageModel("gru", 6, width=16, layers=1).double().eval()
    prompts = [[1], [2], [4]]
    greedy = generate(model, prompts, Settings(tokens=LIMIT, greedy=True, stop=[END]))
    single = [found[0] for found in beam(model, prompts, Search(width=1, tokens=LIMIT, end=[END], alpha=0.0))]
    sums = [sum(h.logprobs) for h in single]
    forced = [
        float(score(model, torch.tensor([h.ids]), begin=prompt[0]).sum())
        for h, prompt in zip(single, prompts, strict=True)
    ]
    table = _table()
    first = generate(table, [[BEGIN]], Settings(tokens=LIMIT, greedy=True, stop=[END]))[0].ids
    likely = {tuple(ids): _probability(table, ids) for ids in (first, [A, C, B, END])}
    errors = {
        Bilingual("greedy - beam 1", "贪心 - 束宽 1"): float(
            sum(a.ids != b.ids for a, b in zip(greedy, single, strict=True))
        ),
        Bilingual("steps - one pass", "逐步 - 一次前向"): max(abs(a - b) for a, b in zip(sums, forced, strict=True)),
        Bilingual("ends elsewhere", "止于别处"): float(sum(not _ends_rightly(h) for h in single)),
        Bilingual("greedy string - 0.048", "贪心所得的串 - 0.048"): abs(likely[tuple(first)] - 0.048),
        Bilingual("missed string - 0.054", "错过的串 - 0.054"): abs(likely[A, C, B, END] - 0.054),
        **_two_calls(),
    }
    wrong = Control(Bilingual("if greedy found the likelier one", "假如贪心找到了更可能的串"), 0.054 - 0.048)
    return identity(errors, 1e-9, wrong)


@torch.no_grad()
def _two_calls() -> dict[Bilingual, float]:
    """Return how far y_i = decoder(c, s_1 … s_{i-1}) is from one pass over the target, and how often x is read again."""
    model = Translator("bahdanau", 12, 12, width=8).double().eval()
    source, target = torch.randint(12, (2, 5)), torch.randint(12, (2, 6))
    expected = model(target, model.remember(source))[0]
    reads = []
    model.encoder.register_forward_hook(lambda *_: reads.append(1))
    context = model.remember(source)
    source.zero_()  # gone: all that the decoder has of it is c
    errors = [largest_error(model(target[:, :i], context)[0][:, -1], expected[:, i - 1]) for i in range(1, 7)]
    return {
        Bilingual("y from c and earlier symbols - one pass", "由 c 与之前的符号得到的 y - 一次前向"): max(errors),
        Bilingual("source read again", "再次读取源序列"): float(abs(len(reads) - 1)),
    }


def _ends_rightly(hypothesis: Hypothesis) -> bool:
    ids = hypothesis.ids
    return END not in ids[:-1] and (ids[-1] == END or len(ids) == LIMIT)


def _table() -> Markov:
    """Return the chain that counted the table."""
    rows = [
        torch.tensor([BEGIN, *prefix, symbol])
        for prefix, counts in TABLE.items()
        for symbol, count in counts.items()
        for _ in range(count if (*prefix, symbol) not in TABLE else 0)
    ]
    model = Markov(BEGIN + 1, order=4, smoothing="maximum-likelihood")
    model.count(*pad(rows))
    return model


def _probability(model: Markov, ids: list[int]) -> float:
    return float(score(model, torch.tensor([ids]), begin=BEGIN).sum().exp())
