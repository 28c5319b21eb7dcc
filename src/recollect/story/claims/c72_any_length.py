"""C72: A Transformer handles short and long sequences alike: self-attention captures dependencies whatever the length.

中文：Transformer 可以同样处理短序列和长序列：无论序列长度如何，自注意力都能捕捉到依赖关系。
Seed: 004_87792308dac9c34b.txt:71
Budget: minutes
Expected: trained on 32 symbols and tested on 256, a dependency by content (a marked symbol, wherever it stands) survives; one by place (the symbol three steps back) is lost with sinusoidal, learned and rotary positions; a GRU keeps it
预期：在 32 个符号上训练、在 256 个上测试，按内容的依赖（某个特殊符号，无论在哪里）得以保持；按位置的依赖（三步之前的符号）在正弦、可学习、旋转位置编码下都会丢失；GRU 能保持
Rule: with the accuracy lost from 32 to 256 symbols, where that at 32 is above 0.9, for each kind of positions and of dependency: holds if every interval is below 0.1; does not hold if every one is above 0.1; holds if … (dependencies of this kind) where some are below and some above; else, or where fewer than four were learned, not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Embedding, LayerNorm, Linear
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import fit
from recollect.story.judging import interval
from recollect.views.bilingual import Bilingual

TRAINED, LENGTHS = 32, (32, 48, 64, 128, 256)
LONGEST = LENGTHS[-1]
SYMBOLS, MARKED, BACK = 8, 8, 3
ASK, VOCABULARY = SYMBOLS + MARKED, SYMBOLS + MARKED + 1
WIDTH, HEADS, LAST = 32, 2, 20
CASES = [
    *(("place", kind) for kind in ("sinusoidal", "learned", "rotary", "gru")),
    *(("content", kind) for kind in ("sinusoidal", "rotary", "none")),
]
LIMIT, SHUFFLED = 0.1, 0
DEPENDENCY = {"place": Bilingual("by place", "按位置"), "content": Bilingual("by content", "按内容")}
Case = tuple[str, str]  # the dependency, and the kind of positions
Profile = dict[int, float]  # accuracy by length; at SHUFFLED that of another row's answers


def run(budget: Budget) -> Result:
    updates, rows = (3, 10) if budget.is_small else (180, 100)
    found = {case: [_profile(*case, seed, updates, rows) for seed in range(budget.seeds)] for case in CASES}
    mean = {case: {n: statistics.fmean(one[n] for one in ones) for n in LENGTHS} for case, ones in found.items()}
    learned = [case for case in CASES if mean[case][TRAINED] > 0.9 and case[1] != "gru"]
    lost = {case: interval([one[TRAINED] - one[LONGEST] for one in ones]) for case, ones in found.items()}
    kept = [case for case in learned if lost[case][1] < LIMIT]
    worst = max(learned or CASES, key=lambda case: mean[case][TRAINED] - mean[case][LONGEST])
    english, chinese = (_figures(mean, language) for language in ("en", "zh"))
    return Result(
        verdict_of([lost[case] for case in learned]),
        Bilingual(
            f"Accuracy at {TRAINED} symbols, as in training, and at {LONGEST}: {english}. The cost of a symbol grows with the length besides (C71).",
            f"{TRAINED} 个符号（与训练相同）与 {LONGEST} 个符号时的正确率：{chinese}。此外，每个符号的代价随长度增长（C71）。",
        ),
        mean[worst][TRAINED] - mean[worst][LONGEST],
        lost[worst],
        Control(
            Bilingual("lost by a GRU, by place", "GRU 按位置损失的正确率"),
            mean["place", "gru"][TRAINED] - mean["place", "gru"][LONGEST],
        ),
        Check(
            Bilingual("with another row's answers all are at chance", "换成别行的答案时都处于随机水平"),
            all(abs(statistics.fmean(one[SHUFFLED] for one in ones) - 1 / SYMBOLS) < 0.06 for ones in found.values()),
        ),
        condition=Bilingual(f"the dependency is {_names(kept, 'en')}", f"依赖关系属于：{_names(kept, 'zh')}"),
        chart=_chart(mean),
        rows=[
            {"dependency": case[0], "positions": case[1], "accuracy": mean[case], "lost": list(lost[case])}
            for case in CASES
        ],
    )


def verdict_of(lost: Sequence[tuple[float, float]]) -> Verdict:
    """Return the verdict of the intervals of the accuracy that is lost, one for each case that was learned."""
    kept = [high < LIMIT for _, high in lost]
    gone = [low > LIMIT for low, _ in lost]
    if len(lost) < 4:
        return "not shown"
    if all(kept) or all(gone):
        return "holds" if all(kept) else "does not hold"
    return "holds if" if any(kept) and any(gone) else "not shown"


def _names(cases: Sequence[Case], language: str) -> str:
    """Return the dependencies of some cases, each with its kinds of positions."""
    parts = []
    for dependency, name in DEPENDENCY.items():
        kinds = ", ".join(kind for other, kind in cases if other == dependency)
        parts += [f"{getattr(name, language)} ({kinds})"] if kinds else []
    return (" or " if language == "en" else "或").join(parts) or "–"


def _figures(mean: dict[Case, Profile], language: str) -> str:
    parts = []
    for dependency, name in DEPENDENCY.items():
        shares = ", ".join(
            f"{kind} {found[TRAINED]:.0%} → {found[LONGEST]:.0%}"
            for (other, kind), found in mean.items()
            if other == dependency
        )
        parts.append(f"{getattr(name, language)}: {shares}" if language == "en" else f"{name.zh}：{shares}")
    return ("; " if language == "en" else "；").join(parts)


def _chart(mean: dict[Case, Profile]) -> Chart:
    curves = [
        Curve(f"{DEPENDENCY[case[0]].en}, {case[1]}", [(float(n), found[n]) for n in LENGTHS])
        for case, found in mean.items()
    ]
    return Chart(
        Bilingual(f"Dependencies, trained on {TRAINED} symbols", f"依赖关系，训练长度 {TRAINED}"),
        Bilingual("symbols read", "读入的符号数"),
        Bilingual("right", "正确率"),
        curves,
        log_x=True,
    )


def _model(kind: str) -> Stack:
    if kind == "gru":
        return Stack(Embedding(VOCABULARY, WIDTH), GRU(WIDTH, WIDTH), Linear(WIDTH, SYMBOLS))
    added: dict[str, list[AnyLayer]] = {
        "sinusoidal": [Positions(WIDTH)],
        "learned": [Positions(WIDTH, "learned", max_length=LONGEST)],
    }
    block = Block(SelfAttention(WIDTH, HEADS, positions="rotary" if kind == "rotary" else None))
    return Stack(Embedding(VOCABULARY, WIDTH), *added.get(kind, []), block, LayerNorm(WIDTH), Linear(WIDTH, SYMBOLS))


def _profile(dependency: str, kind: str, seed: int, updates: int, rows: int) -> Profile:
    """Train on sequences of 32 symbols; return the accuracy by length."""
    torch.manual_seed(seed)
    model = _model(kind)
    draw = _by_place if dependency == "place" else _by_content
    fit(model, lambda: _loss(model, *draw(16, TRAINED)), updates, rate=0.02)
    found = {}
    for n in LENGTHS:
        ids, answers = draw(rows, n)
        with torch.no_grad():
            said = model(ids)[0][:, -answers.shape[1] :].argmax(2)[:, -LAST:]
        found[n] = float((said == answers[:, -LAST:]).float().mean())
        if n == TRAINED:
            found[SHUFFLED] = float((said == answers[:, -LAST:].roll(1, 0)).float().mean())
    return found


def _loss(model: Stack, ids: Tensor, answers: Tensor) -> Tensor:
    return F.cross_entropy(model(ids)[0][:, -answers.shape[1] :].flatten(0, 1), answers.flatten())


def _by_place(rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return symbols (B, T) and those three steps back (B, T - 3)."""
    ids = torch.randint(SYMBOLS, (rows, steps))
    return ids, ids[:, :-BACK]


def _by_content(rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return symbols (B, T) with a marked one somewhere among them and a question at the end, and which it is (B, 1)."""
    ids = torch.randint(SYMBOLS, (rows, steps))
    marked = torch.randint(MARKED, (rows, 1))
    ids.scatter_(1, torch.randint(steps - 1, (rows, 1)), SYMBOLS + marked)
    ids[:, -1] = ASK
    return ids, marked
