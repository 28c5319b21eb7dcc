"""A task that memory decides: two notes, many letters that do not matter, then a question about one of the notes.

Every family is trained for the same time on the same lines (`notes` of the built-in texts), by the loss of the answer
alone, and examined at growing distances between note and question, also at distances it was never trained at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from recollect.core.record import record
from recollect.data.synthetic.builtin import builtin_documents
from recollect.data.text.tokenizer import Tokenizer
from recollect.layers.ngram.markov import Markov
from recollect.models.language import LanguageModel
from recollect.models.sizes import sized
from recollect.training.optimizer import Optimizer

TRAINED = (1, 2, 4, 8, 16, 32, 64)  # letters between the notes and the question
DISTANCES = (*TRAINED, 128, 256)
LINES = 4000  # for training, at each distance
HELD_OUT = 256  # for the exam, at each distance
SHOWN = 16  # the distance of the line whose attention and gates are shown
PARAMETERS = 60_000
BATCH = 32
CHANCE = 0.1  # ten digits, ten capitals
OPTIMIZER = Optimizer(rate=3e-3, weight_decay=0.0)


@dataclass(frozen=True)
class Exam:
    """The lines as ids (N, distance + 4), by distance: those to train on, and the held-out ones."""

    tokenizer: Tokenizer
    train: dict[int, Tensor]
    held_out: dict[int, Tensor]


@dataclass(frozen=True)
class Grade:
    """The result of one family."""

    family: str
    updates: int  # 0: it counts
    accuracy: dict[int, float]  # by distance


@dataclass(frozen=True)
class Inside:
    """Inner values of a trained model while it reads one line."""

    family: str
    name: str  # as `record` calls it
    symbols: tuple[str, ...]  # of the line, the answer left out
    values: tuple[tuple[float, ...], ...]
    answer: str  # the model's
    expected: str


def make_exam(lines: int = LINES, seed: int = 0) -> Exam:
    """Return the exam; no held-out line is in the training part."""
    tokenizer = Tokenizer.train("char", ["".join(builtin_documents(f"notes:distance=8,count=500,seed={seed}"))])
    train: dict[int, Tensor] = {}
    held_out: dict[int, Tensor] = {}
    for distance in DISTANCES:
        used = lines if distance in TRAINED else 0
        text = "".join(builtin_documents(f"notes:distance={distance},count={used + HELD_OUT},seed={seed}"))
        rows = torch.from_numpy(tokenizer.encode(text.replace("\n", ""), strict=True)).view(-1, distance + 4)
        held_out[distance] = rows[used:]
        if used:
            train[distance] = rows[:used]
    return Exam(tokenizer, train, held_out)


def learn(
    family: str, exam: Exam, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[LanguageModel, int]:
    """Train a family for some seconds on the answers; return it and its updates. A Markov model counts the lines."""
    torch.manual_seed(0)
    model = LanguageModel(sized(family, exam.tokenizer.vocab_size, parameters=PARAMETERS))
    if isinstance(model.body, Markov):
        for rows in exam.train.values():
            model.body.count(rows)
        return model.eval(), 0
    draw = torch.Generator().manual_seed(0)
    optimizer = OPTIMIZER.build(model)
    updates = 0
    begun = clock()
    while (share := (clock() - begun) / seconds) < 1:
        lines = exam.train[TRAINED[int(torch.randint(len(TRAINED), (), generator=draw))]]
        lines = lines[torch.randint(len(lines), (BATCH,), generator=draw)]  # (B, T + 1)
        loss = F.cross_entropy(model(lines[:, :-1])[0][:, -1], lines[:, -1])
        optimizer.zero_grad()
        loss.backward()
        OPTIMIZER.set_rates(optimizer, OPTIMIZER.rate_at(share))
        OPTIMIZER.clip(model.parameters())
        optimizer.step()
        updates += 1
    return model.eval(), updates


@torch.no_grad()
def accuracy(model: LanguageModel, lines: Tensor) -> float:
    """Return the share of lines (N, T + 1) whose last symbol is the model's first choice."""
    right = [model(part[:, :-1])[0][:, -1].argmax(-1) == part[:, -1] for part in lines.split(64)]
    return float(torch.cat(right).float().mean())


def grade(family: str, model: LanguageModel, updates: int, exam: Exam) -> Grade:
    """Return the share of right answers at every distance."""
    return Grade(family, updates, {distance: accuracy(model, lines) for distance, lines in exam.held_out.items()})


# ---- looking inside ------------------------------------------------------------------------------------


def attention_of(family: str, model: LanguageModel, exam: Exam) -> Inside:
    """Return the attention weights (T, T) of the head that, at the question, attends most to the note asked for."""
    line = shown_line(model, exam)
    asked = int((line[:-1] == line[-1]).nonzero()[0])  # the note's place: it is what the answer repeats
    seen = {name: value[0] for name, value in _recorded(model, line).items() if name.endswith(".weights")}  # (N, T, T)
    heads = [(name, head) for name, weights in seen.items() for head in range(len(weights))]
    name, head = max(heads, key=lambda key: float(seen[key[0]][key[1], -1, asked]))
    return _inside(family, f"{name}[0, {head}]", seen[name][head], model, exam, line)


def asked_weight(attention: Inside) -> float:
    """Return the weight that the question puts on the note it asks for."""
    return attention.values[-1][attention.symbols.index(attention.expected)]


def gates_of(family: str, model: LanguageModel, exam: Exam, gate: str) -> Inside:
    """Return one gate's values (1, T), the mean over the cells of the first layer that has it."""
    line = shown_line(model, exam)
    seen = _recorded(model, line)
    name = next(name for name in seen if name.endswith(f".{gate}"))
    return _inside(family, f"{name}.mean(-1)", seen[name].mean(-1), model, exam, line)


def shown_line(model: LanguageModel, exam: Exam) -> Tensor:
    """Return the first held-out line that the model answers rightly; the first of all if there is none."""
    lines = exam.held_out[SHOWN]
    return next((line for line in lines if accuracy(model, line[None]) == 1), lines[0])


@torch.no_grad()
def _recorded(model: LanguageModel, line: Tensor) -> Mapping[str, Tensor]:
    with record(model) as seen:
        model(line[None, :-1])
    return seen


@torch.no_grad()
def _inside(family: str, name: str, values: Tensor, model: LanguageModel, exam: Exam, line: Tensor) -> Inside:
    symbols = [exam.tokenizer.decode([int(i)]) for i in line]
    answer = exam.tokenizer.decode([int(model(line[None, :-1])[0][0, -1].argmax())])
    rows = tuple(tuple(row) for row in values.tolist())
    return Inside(family, name, tuple(symbols[:-1]), rows, answer, symbols[-1])
