"""C33: Truncated back-propagation has a slight regularising effect.

中文：截断的随时间反向传播有轻度的正则化效果。
Seed: 002_c6efc9a4698e0e4d.txt:164
Budget: minutes
Expected: a GRU trained on 10,000 characters, with as many updates for every τ: the gap between held-out and training loss differs little between τ = 5, 20 and 100, and the best held-out loss is not lower with truncation
预期：GRU 在 1 万个字符上训练，各 τ 更新次数相同：τ = 5、20 与 100 的留出与训练损失之差相差不大，截断也不降低最低留出损失
Rule: with full minus truncated, at τ = 5 and 20: holds if an interval of the best held-out loss is above 0; holds if … (a smaller gap is meant, not a better model) if only one of the gap at the end is; does not hold if all four are below 0.02 and the full one over-fits (gap above 0.1); else not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.compose import Stack
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.gru import GRU
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.judging import interval
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

TRAINED, HELD_OUT, ROWS, CHUNK = 10_000, 5_000, 20, 100  # characters; an update for each chunk of a row
TAUS = (5, 20, CHUNK)  # the last is full within a chunk
HIDDEN, WIDTH, RATE = 64, 16, 1e-2
EVERY, SAME, OVER_FITS = 20, 0.02, 0.1  # updates between two measures; nats; nats
Course = list[tuple[float, float]]  # losses in training and held out, in nats a character


def run(budget: Budget) -> Result:
    updates = 2 if budget.is_small else 200
    ids, symbols = characters(TRAINED + HELD_OUT)
    seeds = range(budget.seeds)
    found = {tau: [_course(ids, symbols, tau, seed, updates) for seed in seeds] for tau in TAUS}
    best = {tau: [min(held for _, held in course) for course in one] for tau, one in found.items()}
    gaps = {tau: [course[-1][1] - course[-1][0] for course in one] for tau, one in found.items()}
    better, closer = (
        {tau: [full - cut for full, cut in zip(of[CHUNK], of[tau], strict=True)] for tau in TAUS[:-1]}
        for of in (best, gaps)
    )
    gains, closings = ([interval(one) for one in of.values()] for of in (better, closer))
    judged = max(better, key=lambda tau: statistics.fmean(better[tau]))
    losses, ends = ({tau: statistics.fmean(one) for tau, one in of.items()} for of in (best, gaps))
    figures, widths = (", ".join(f"τ = {tau} {one:.3f}" for tau, one in of.items()) for of in (losses, ends))
    mean = {
        tau: [tuple(map(statistics.fmean, zip(*at, strict=True))) for at in zip(*one, strict=True)]
        for tau, one in found.items()
    }
    return Result(
        verdict_of(gains, closings, min(gaps[CHUNK])),
        Bilingual(
            f"Best held-out loss, nats a character: {figures} (the last is not truncated). Held-out minus training loss after {updates} updates: {widths}.",
            f"最低留出损失（奈特/字符）：{figures}（最后一个不截断）。{updates} 次更新后留出与训练损失之差：{widths}。",
        ),
        statistics.fmean(better[judged]),
        interval(better[judged]),
        Control(Bilingual("loss of unigrams", "一元模型的损失"), _unigram(ids, symbols)),
        Check(
            Bilingual("no held-out row of 100 characters is in the training part", "留出的 100 字符行都不在训练部分中"),
            _is_disjoint(ids),
        ),
        Bilingual("a smaller gap is meant, not a lower held-out loss", "仅指差距缩小，而非留出损失更低"),
        Chart(
            Bilingual("Loss during training", "训练过程中的损失"),
            Bilingual("updates", "更新次数"),
            Bilingual("nats a character", "奈特/字符"),
            [
                Curve(f"τ = {tau}, {part}", [(float(EVERY * i), at[place]) for i, at in enumerate(one)])
                for tau, one in mean.items()
                for place, part in enumerate(("training", "held out"))
            ],
        ),
        [{"tau": tau, "best": best[tau], "gap": gaps[tau]} for tau in TAUS],
    )


def verdict_of(gains: Sequence[tuple[float, float]], closings: Sequence[tuple[float, float]], gap: float) -> Verdict:
    """Return the verdict of how much lower held-out losses and gaps are with truncation, and of the gap without."""
    if any(low > 0 for low, _ in gains):
        return "holds"
    if any(low > 0 for low, _ in closings):
        return "holds if"
    is_same = all(high < SAME for _, high in (*gains, *closings))
    return "does not hold" if is_same and gap > OVER_FITS else "not shown"


def _course(ids: Tensor, symbols: int, tau: int, seed: int, updates: int) -> Course:
    """Train with one update for each chunk, whose gradient is cut every `tau` steps; the memory is carried."""
    torch.manual_seed(seed)
    model = Stack(Embedding(symbols, WIDTH), GRU(WIDTH, HIDDEN), Linear(HIDDEN, symbols))
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    trained, held_out = _parts(ids)
    memory, begin, course = None, 0, []
    for update in range(updates):
        if update % EVERY == 0:
            course.append((_loss_of(model, trained), _loss_of(model, held_out)))
        if begin + CHUNK >= trained.shape[1]:
            memory, begin = None, 0
        optimizer.zero_grad()
        for start in range(begin, begin + CHUNK, tau):
            logits, carried = model(trained[:, start : start + tau], memory)
            target = trained[:, start + 1 : start + tau + 1]
            (F.cross_entropy(logits.flatten(0, 1), target.flatten()) * tau / CHUNK).backward()
            memory = carried.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        begin += CHUNK
    return course


def _parts(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the text of training and the held-out one behind it, each as rows (B, T)."""
    return ids[:TRAINED].view(ROWS, -1), ids[TRAINED:].view(ROWS, -1)


@torch.no_grad()
def _loss_of(model: Stack, rows: Tensor) -> float:
    logits = model(rows[:, :-1])[0]
    return float(F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))


def _unigram(ids: Tensor, symbols: int) -> float:
    """Return the held-out loss of the frequencies in the training part, each count one too high."""
    counts = torch.bincount(ids[:TRAINED], minlength=symbols) + 1.0
    return float(-(counts / counts.sum()).log()[ids[TRAINED:]].mean())


def _is_disjoint(ids: Tensor) -> bool:
    windows = {tuple(row) for row in ids[:TRAINED].unfold(0, CHUNK, 1).tolist()}
    return not any(tuple(row) in windows for row in ids[TRAINED:].view(-1, CHUNK).tolist())
