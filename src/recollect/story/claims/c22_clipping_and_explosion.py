"""C22: Clipping gradients solves their explosion.

中文：梯度裁剪可以解决梯度爆炸。
Seed: 000_56d5b8bda4e4cf77.txt:34
Budget: minutes
Expected: a relu RNN trained on characters at a rate of 1 diverges often without clipping, and never with a norm of 1; tanh diverges in neither; clipping by norm leaves the share of early steps in the gradient, which vanishes, as it is
预期：以学习率 1 在字符上训练的 relu RNN，不裁剪时常常发散，范数裁剪为 1 时从不发散；tanh 两种情况都不发散；按范数裁剪不改变早期步在梯度中所占的比例，梯度消失依旧
Rule: with the share of relu runs that diverge, without clipping minus with it: does not hold if its interval is below 0, or a run diverges with clipping; of the rest with the interval above 0, by what clipping changes in the share of the gradient from more than 50 steps back: holds if it raises it by more than a ten-thousandth in every run; holds if … (only explosion is meant) if it changes it by less in every run; else not shown
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable
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
GAP, SAME = 50, 1e-4  # steps; a relative change that is none
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
    gain = interval([clipped[0] - free[0] for clipped, free in zip(recall[CLIP], recall[math.inf], strict=True)])
    others = statistics.fmean(other for found in recall.values() for _, other in found)
    low, high = interval(less)
    early = [_early_share(ids, symbols, seed) for seed in seeds]
    changes = [after / before - 1 for before, after, _ in early]
    by_value = min(abs(other / before - 1) for before, _, other in early)
    figures = ((low, high), max(shares["relu", CLIP] + shares["tanh", CLIP]), (min(changes), max(changes)))
    names = {case: f"{case[0]} {'clipped' if case[1] == CLIP else 'not clipped'}" for case in cases}
    mean = {case: statistics.fmean(found) for case, found in shares.items()}
    held = [statistics.fmean(right for right, _ in recall[clip]) for clip in (math.inf, CLIP)]
    shown = ", ".join(f"{names[case]} {mean[case]:.0%}" for case in cases)
    chinese = "，".join(f"{kind} {'裁剪' if clip == CLIP else '不裁剪'} {mean[kind, clip]:.0%}" for kind, clip in cases)
    words = Bilingual(
        f"Runs that diverge: {shown} ({RUNS * budget.seeds} runs each). Recall over {GAP} steps: {held[0]:.0%} without clipping, {held[1]:.0%} with it (difference [{gain[0]:+.0%}, {gain[1]:+.0%}]). "
        f"Steps more than {GAP} back have a share of {statistics.fmean(one[0] for one in early):.0e} in a tanh network's gradient; clipping by norm changes it by {max(map(abs, changes)):.0e} of itself, by value by at least {by_value:.0%}.",
        f"发散的训练：{chinese}（各 {RUNS * budget.seeds} 次）。隔 {GAP} 步的回忆：不裁剪 {held[0]:.0%}，裁剪 {held[1]:.0%}（差 [{gain[0]:+.0%}, {gain[1]:+.0%}]）。"
        f"tanh 网络的梯度中，{GAP} 步以前所占的比例为 {statistics.fmean(one[0] for one in early):.0e}；按范数裁剪使其相对改变 {max(map(abs, changes)):.0e}，按值裁剪至少改变 {by_value:.0%}。",
    )
    curves = [
        Curve(name, [(float(u), norm) for u, norm in enumerate(runs[case][0][0][1]) if math.isfinite(norm)])
        for case, name in names.items()
    ]
    return Result(
        verdict_of(*figures),
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
        Bilingual(
            "explosion is meant: what vanishes in the gradient stays as it is", "仅指梯度爆炸：梯度中消失的部分依旧"
        ),
        Chart(
            Bilingual("Norm of the gradient before clipping (the first run)", "裁剪前的梯度范数（首次训练）"),
            Bilingual("update", "更新"),
            Bilingual("norm", "范数"),
            [curve for curve in curves if curve.points],
            log_y=True,
        ),
        [{"run": name, "diverged": shares[case]} for case, name in names.items()],
        figures,
    )


def verdict_of(less: tuple[float, float], clipped: float, change: tuple[float, float]) -> Verdict:
    """Return the verdict of how much fewer runs diverge, the share that does, and the change of early steps' share."""
    if less[1] < 0 or clipped > 0:
        return "does not hold"
    if less[0] <= 0:
        return "not shown"
    if change[0] > SAME:
        return "holds"
    return "holds if" if -SAME < change[0] <= change[1] < SAME else "not shown"


def _early_share(ids: Tensor, symbols: int, seed: int) -> tuple[float, float, float]:
    """Return by how much early steps' part of the gradient is smaller than late ones': as it is, and clipped two ways.

    The two parts are those of two copies of one network, of which the second reads the last steps.
    """
    torch.manual_seed(seed)
    late = RNN(symbols, HIDDEN, dtype=torch.float64)
    early = copy.deepcopy(late)
    begins = torch.randint(len(ids) - 2 * GAP, (ROWS, 1))
    x = F.one_hot(ids[begins + torch.arange(2 * GAP)], symbols).double()
    last = late(x[:, GAP:], early(x[:, :GAP])[1])[0][:, -1]
    weights = [*early.parameters(), *late.parameters()]
    found = torch.autograd.grad((last * torch.randn_like(last)).sum(), weights)
    norm, largest = (
        torch.stack([one.norm() for one in found]).norm().item(),
        max(one.abs().max().item() for one in found),
    )

    def share() -> float:
        parts = [
            torch.stack([w.grad.norm() for w in half.parameters() if w.grad is not None]) for half in (early, late)
        ]
        return float(parts[0].norm() / parts[1].norm())

    shares = []
    clips: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: nn.utils.clip_grad_norm_(weights, norm / 2),
        lambda: nn.utils.clip_grad_value_(weights, largest / 2),
    )
    for clip in clips:
        for weight, gradient in zip(weights, found, strict=True):
            weight.grad = gradient.clone()
        clip()
        shares.append(share())
    return shares[0], shares[1], shares[2]


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
