"""C14: Sharing weights over time lowers the number of parameters and over-fitting.

中文：随时间共享权重可以减少参数量并降低过拟合。
Seed: 000_56d5b8bda4e4cf77.txt:115
Budget: minutes
Expected: an RNN with weights of its own at each of 20 steps has 20 times the parameters of the cell, a higher held-out loss on 200 training sequences, a larger gap between the two, and is undefined behind step 20
预期：20 步各有权重的 RNN，单元参数为共享时的 20 倍；200 个训练序列上留出损失更高、与训练损失的差距更大，且第 20 步之后无定义
Rule: with the best held-out loss of each, not shared minus shared, and with the gap at the end: holds if both intervals are above 0; holds if … (training is not stopped in time) if only that of the gap is, and the other is within 0.05 of 0; does not hold if either is below 0; else not shown
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import size_of
from recollect.story.judging import interval
from recollect.story.texts import characters
from recollect.views.bilingual import Bilingual

STEPS, TRAINED, HELD_OUT = 20, 200, 400  # sequences
WIDTH, HIDDEN, ROWS = 16, 32, 50
EVERY, SAME = 20, 0.05  # updates between two measures; nats


class CharacterRNN(nn.Module):
    """Predict the next character by an RNN whose weights are shared, or by one with a cell for each step."""

    def __init__(self, symbols: int, shared: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(symbols, WIDTH)
        self.cells = nn.ModuleList(RNN(WIDTH, HIDDEN) for _ in range(1 if shared else STEPS))
        self.head = nn.Linear(HIDDEN, symbols)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits (B, T, V) of the character behind each."""
        x = self.table(ids)  # (B, T, D)
        if len(self.cells) == 1:
            return self.head(self.cells[0](x)[0])
        memory, outputs = None, []
        for cell, one in zip(self.cells, x.split(1, dim=1), strict=True):
            y, memory = cell(one, memory)
            outputs.append(y)
        return self.head(torch.cat(outputs, 1))


@dataclass(frozen=True)
class Course:
    """Losses in nats a character, measured during training."""

    trained: list[float]
    held_out: list[float]
    beyond: float | None  # held out, at the steps behind those of training

    @property
    def gap(self) -> float:
        """The gap between the two at the end."""
        return self.held_out[-1] - self.trained[-1]


def run(budget: Budget) -> Result:
    updates = EVERY if budget.is_small else 600
    ids, symbols = characters((TRAINED + HELD_OUT) * 200)
    found = {
        shared: [_course(ids, symbols, shared, seed, updates) for seed in range(budget.seeds)]
        for shared in (True, False)
    }
    pairs = list(zip(found[False], found[True], strict=True))
    losses = [min(own.held_out) - min(shared.held_out) for own, shared in pairs]
    gaps = [own.gap - shared.gap for own, shared in pairs]
    sizes = [size_of(CharacterRNN(symbols, shared).cells) for shared in (True, False)]
    best = [statistics.fmean(min(one.held_out) for one in found[shared]) for shared in (True, False)]
    beyond = statistics.fmean(one.beyond for one in found[True] if one.beyond is not None)
    low, high = interval(losses)
    words = Bilingual(
        f"Cells of {sizes[0]:,} parameters shared, {sizes[1]:,} not shared. Best held-out loss {best[0]:.3f} and {best[1]:.3f} nats a character, difference {statistics.fmean(losses):.3f} [{low:.3f}, {high:.3f}]; at the end the gap to training is {statistics.fmean(gaps):.2f} nats larger without sharing. At steps {STEPS + 1} to {2 * STEPS} the shared one has {beyond:.3f}, the other none.",
        f"单元参数：共享 {sizes[0]:,}，不共享 {sizes[1]:,}。最低留出损失 {best[0]:.3f} 与 {best[1]:.3f} 奈特/字符，相差 {statistics.fmean(losses):.3f} [{low:.3f}, {high:.3f}]；训练结束时不共享的泛化差距大 {statistics.fmean(gaps):.2f} 奈特。第 {STEPS + 1} 至 {2 * STEPS} 步共享者为 {beyond:.3f}，另一个没有定义。",
    )
    names = {True: "shared", False: "not shared"}
    curves = [
        Curve(f"{names[shared]}, {part}", _mean([getattr(one, kind) for one in courses]))
        for shared, courses in found.items()
        for part, kind in (("training", "trained"), ("held out", "held_out"))
    ]
    return Result(
        verdict_of((low, high), interval(gaps)),
        words,
        statistics.fmean(losses),
        (low, high),
        Control(Bilingual("loss of unigrams", "一元模型的损失"), _unigram(ids, symbols)),
        Check(Bilingual("no held-out sequence is in the training part", "留出序列不在训练部分中"), _is_disjoint(ids)),
        Bilingual("training is not stopped where the held-out loss is lowest", "没有在留出损失最低处停止训练"),
        Chart(
            Bilingual("Loss during training", "训练过程中的损失"),
            Bilingual("updates", "更新次数"),
            Bilingual("nats a character", "奈特/字符"),
            curves,
        ),
    )


def verdict_of(loss: tuple[float, float], gap: tuple[float, float]) -> Verdict:
    """Return the verdict of the intervals of held-out loss and gap, not shared minus shared."""
    if loss[1] < 0 or gap[1] < 0:
        return "does not hold"
    if gap[0] <= 0:
        return "not shown"
    if loss[0] > 0:
        return "holds"
    return "holds if" if loss[0] > -SAME and loss[1] < SAME else "not shown"


def _parts(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return sequences of training and held-out ones (N, 2 STEPS + 1), none of which overlap."""
    rows = ids[: len(ids) // 200 * 200].view(-1, 200)[:, : 2 * STEPS + 1]
    return rows[:TRAINED], rows[TRAINED:]


def _is_disjoint(ids: Tensor) -> bool:
    trained, held_out = ({tuple(row.tolist()) for row in part} for part in _parts(ids))
    return not trained & held_out


def _unigram(ids: Tensor, symbols: int) -> float:
    """Return the held-out loss of the frequencies in the training part, each count one too high."""
    trained, held_out = _parts(ids)
    counts = torch.bincount(trained.flatten(), minlength=symbols) + 1.0
    return float(-(counts / counts.sum()).log()[held_out[:, 1 : STEPS + 1]].mean())


def _course(ids: Tensor, symbols: int, shared: bool, seed: int, updates: int) -> Course:
    torch.manual_seed(seed)
    trained, held_out = _parts(ids)
    model = CharacterRNN(symbols, shared)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    losses: tuple[list[float], list[float]] = ([], [])
    for update in range(updates):
        if update % EVERY == 0:
            for kept, part in zip(losses, (trained, held_out), strict=True):
                kept.append(_held(model, part, 0))
        optimizer.zero_grad()
        _loss(model, trained[torch.randint(TRAINED, (ROWS,))], 0).backward()
        optimizer.step()
    beyond = _held(model, held_out, STEPS) if shared else None
    return Course(*losses, beyond)


def _loss(model: CharacterRNN, rows: Tensor, begin: int) -> Tensor:
    """Return the loss at the `STEPS` characters behind `begin`; those before are read too."""
    logits = model(rows[:, : begin + STEPS])[:, begin:]
    return F.cross_entropy(logits.flatten(0, 1), rows[:, begin + 1 : begin + STEPS + 1].flatten())


@torch.no_grad()
def _held(model: CharacterRNN, rows: Tensor, begin: int) -> float:
    return float(_loss(model, rows, begin))


def _mean(courses: list[list[float]]) -> list[tuple[float, float]]:
    return [(float(EVERY * i), statistics.fmean(values)) for i, values in enumerate(zip(*courses, strict=True))]
