"""C22: Clipping gradients solves their explosion.

中文：梯度裁剪可以解决梯度爆炸。
Seed: 000_56d5b8bda4e4cf77.txt:34
Budget: minutes
Expected: a relu RNN trained on characters at a rate of 1 diverges often without clipping, and never with a norm of 1; tanh diverges in neither; clipping does not help to recall over 50 steps, where gradients vanish
预期：以学习率 1 在字符上训练的 relu RNN，不裁剪时常常发散，范数裁剪为 1 时从不发散；tanh 两种情况都不发散；裁剪无助于隔 50 步回忆，那里的问题是梯度消失
Rule: with the share of relu runs that diverge, without clipping minus with it: does not hold if its interval is below 0, or a run diverges with clipping; holds if it is above 0 and clipping raises recall over 50 steps too (interval above 0.1); holds if … (only explosion is meant) where recall is not raised; else not shown
"""

from __future__ import annotations

import math
import statistics
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.gaps import CHANCE, WIDTH, accuracies, trained
from recollect.story.judging import interval
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

CHARACTERS, HIDDEN, ROWS, STEPS, RATE = 10_000, 64, 32, 35, 1.0
CLIP, RUNS, LAST = 1.0, 4, 10  # the norm, runs of each seed, updates whose mean loss is judged
GAP, RAISED = 50, 0.1
Kind: TypeAlias = Literal["relu", "tanh"]
KINDS: tuple[Kind, Kind] = ("relu", "tanh")
Run = tuple[bool, list[float]]  # whether it diverged, and the norms of its gradients before clipping


def run(budget: Budget) -> Result:
    updates, learned = (2, 2) if budget.is_small else (120, 600)
    ids, symbols = characters(CHARACTERS)
    seeds = range(budget.seeds)
    cases = [(kind, clip) for kind in KINDS for clip in (math.inf, CLIP)]
    runs = {
        (kind, clip): [
            [_run(ids, symbols, kind, clip, RUNS * seed + i, updates) for i in range(RUNS)] for seed in seeds
        ]
        for kind, clip in cases
    }
    shares = {case: [statistics.fmean(gone for gone, _ in one) for one in found] for case, found in runs.items()}
    less = [free - clipped for free, clipped in zip(shares["relu", math.inf], shares["relu", CLIP], strict=True)]
    recall = {clip: [_recall(seed, learned, clip) for seed in seeds] for clip in (math.inf, CLIP)}
    gains = [clipped[0] - free[0] for clipped, free in zip(recall[CLIP], recall[math.inf], strict=True)]
    others = statistics.fmean(other for found in recall.values() for _, other in found)
    low, high = interval(less)
    names = {case: f"{case[0]} {'clipped' if case[1] == CLIP else 'not clipped'}" for case in cases}
    mean = {case: statistics.fmean(found) for case, found in shares.items()}
    held = [statistics.fmean(right for right, _ in recall[clip]) for clip in (math.inf, CLIP)]
    figures = ", ".join(f"{names[case]} {mean[case]:.0%}" for case in cases)
    chinese = "，".join(f"{kind} {'裁剪' if clip == CLIP else '不裁剪'} {mean[kind, clip]:.0%}" for kind, clip in cases)
    words = Bilingual(
        f"Runs that diverge: {figures} ({RUNS * budget.seeds} runs each). Recall over {GAP} steps: {held[0]:.0%} without clipping, {held[1]:.0%} with it.",
        f"发散的训练：{chinese}（各 {RUNS * budget.seeds} 次）。隔 {GAP} 步的回忆：不裁剪 {held[0]:.0%}，裁剪 {held[1]:.0%}。",
    )
    curves = [
        Curve(name, [(float(u), norm) for u, norm in enumerate(runs[case][0][0][1]) if math.isfinite(norm)])
        for case, name in names.items()
    ]
    return Result(
        verdict_of((low, high), max(shares["relu", CLIP] + shares["tanh", CLIP]), interval(gains)),
        words,
        statistics.fmean(less),
        (low, high),
        Control(
            Bilingual("share of tanh runs that diverge without clipping", "不裁剪的 tanh 发散比例"),
            mean["tanh", math.inf],
        ),
        Check(
            Bilingual("the cues of other sequences are at chance", "换成别的序列的提示时处于随机水平"),
            abs(others - CHANCE) < 0.05,
        ),
        Bilingual("explosion is meant: vanishing gradients stay as they are", "仅指梯度爆炸：梯度消失依旧"),
        Chart(
            Bilingual("Norm of the gradient before clipping (the first run)", "裁剪前的梯度范数（首次训练）"),
            Bilingual("update", "更新"),
            Bilingual("norm", "范数"),
            [curve for curve in curves if curve.points],
            log_y=True,
        ),
        [{"run": name, "diverged": shares[case]} for case, name in names.items()],
    )


def verdict_of(less: tuple[float, float], clipped: float, gain: tuple[float, float]) -> Verdict:
    """Return the verdict of how much fewer runs diverge, the share that does with clipping, and the gain of recall."""
    if less[1] < 0 or clipped > 0:
        return "does not hold"
    if less[0] <= 0:
        return "not shown"
    return "holds" if gain[0] > RAISED else "holds if"


def _run(ids: Tensor, symbols: int, kind: Kind, clip: float, seed: int, updates: int) -> Run:
    """Train on characters by gradient descent; it diverges where the last losses are above that of uniform guesses."""
    torch.manual_seed(seed)
    cell, head = RNN(symbols, HIDDEN, nonlinearity=kind), nn.Linear(HIDDEN, symbols)
    weights = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, RATE)
    norms, losses = [], []
    for _ in range(updates):
        begins = torch.randint(len(ids) - STEPS, (ROWS, 1))
        rows = ids[begins + torch.arange(STEPS + 1)]  # (B, T + 1)
        logits = head(cell(F.one_hot(rows[:, :-1], symbols).float())[0])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(weights, clip)))
        losses.append(loss.item())
        if not math.isfinite(losses[-1] + norms[-1]):
            return True, norms
        optimizer.step()
    return statistics.fmean(losses[-LAST:]) > math.log(symbols), norms


def _recall(seed: int, updates: int, clip: float) -> tuple[float, float]:
    return accuracies(trained(lambda: RNN(WIDTH, 56), 1, GAP, seed, updates, clip), GAP)
