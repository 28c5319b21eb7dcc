"""What truncating back-propagation costs: a gradient of the wrong sign, and dependencies longer than a chunk.

    python benchmarks/truncation.py

**Influence balancing** (Tallec & Ollivier 2017): s_{t+1} = A s_t + θ b, 23 units in a chain with A(i,i) = A(i,i+1) =
1/2, b = +1 for the first 10 units and −1 for the 13 behind them; ℓ_t = (s_1 − 1)² / 2. At first a larger θ raises s_1,
in the limit it lowers it: s_1 → −6 θ. It begins at θ = 1/2, at rest (loss 8); one update of θ at the end of each chunk,
by the gradient of its summed loss; rate and schedule are the same for all.

**Copy**: a symbol out of 4 must be repeated L steps later, when a marker asks for it, with blanks between and around;
cues begin at random places. A GRU reads rows of 100 symbols in chunks of τ, memory carried within a row, one update
per chunk, and the same number of symbols for every τ. Two controls show why L > τ may be learned nevertheless: in one
the memory is not carried, in the other only the output layer is trained, so that the memory is an untrained GRU's.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common import interleave, save_result, summary
from recollect.core.layer import SequenceLayer
from recollect.layers.recurrent.recurrence import Hidden
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.training.optimizer import Optimizer
from recollect.training.truncation import Truncation

UNITS, POSITIVE, START = 23, 10, 0.5
BALANCING = {"symbols": 20_000, "seeds": 5, "start_loss": 8.0, "converged_below": 0.8, "stopped_above": 1e9}
SLOWLY = Optimizer("sgd", rate=2e-5, schedule="cosine", clip_norm=None)
TRUNCATIONS = [
    *(Truncation("regular", steps) for steps in (5, 10, 20, 50, 100, 1000)),
    *(Truncation("random", steps, every=1) for steps in (10, 20, 50)),
    *(Truncation("reweighted", steps, every=1) for steps in (5, 10, 20, 50)),
]

LAGS, CHUNKS, CONTROLS = (4, 8, 15, 30), (5, 10, 20, 50, None), ("not carried", "untrained")
CELLS = [(lag, steps, "carried") for lag in LAGS for steps in CHUNKS]
CELLS += [(lag, 5, control) for control in CONTROLS for lag in LAGS]
CUES, BLANK, MARKER, IGNORED = 4, 4, 5, -100
COPY = {"symbols": 12_000, "seeds": 3, "rows": 32, "row": 100, "width": 32, "success": 0.95, "chance": 1 / CUES}
QUICKLY = Optimizer("adamw", rate=1e-2, schedule="cosine", weight_decay=0.0, clip_norm=1.0)


def main() -> None:
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        balancing = list(pool.map(balance, TRUNCATIONS))
        show_balancing(balancing)
        copying = list(pool.map(copy, *zip(*CELLS, strict=True)))
        gradients = list(pool.map(gradient_norms, CHUNKS))
    speeds = copying_speeds()
    show_copying(copying, gradients, speeds)
    rows = [{"experiment": "influence balancing", **row} for row in balancing]
    rows += [{"experiment": "copy", **row} for row in copying]
    settings = {"balancing": BALANCING | vars(SLOWLY), "copy": COPY | vars(QUICKLY)}
    save_result(
        "truncation",
        rows,
        gradients=gradients,
        symbols_per_second=speeds,
        settings=settings,
        verdicts=verdicts(balancing, copying),
    )


# ---- influence balancing ---------------------------------------------------------------------------


class Chain(SequenceLayer[Hidden]):
    """The system as a layer: its inputs (B, T, 0) only give the length, its outputs (B, T, 1) are s_1."""

    width, width_out = 0, 1

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(START, dtype=torch.float64))
        self.A = 0.5 * (torch.eye(UNITS) + torch.eye(UNITS).roll(1, 1).triu()).double()
        self.b = torch.where(torch.arange(UNITS) < POSITIVE, 1.0, -1.0).double()

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Hidden:
        """Return the state at rest: s = A s + θ b."""
        at_rest = torch.linalg.solve(torch.eye(UNITS).double() - self.A, START * self.b)
        return Hidden(hidden=at_rest.repeat(batch_size, 1))

    def read(self, x: Tensor, memory: Hidden, valid: Tensor | None) -> tuple[Tensor, Hidden]:
        """s_{t+1} = A s_t + θ b."""
        state, push, outputs = memory.hidden, self.theta * self.b, []
        for _ in range(x.shape[1]):
            state = state @ self.A.T + push
            outputs.append(state[:, None, :1])
        return torch.cat(outputs, dim=1), Hidden(hidden=state)


def balance(truncation: Truncation) -> dict[str, Any]:
    losses = [balance_once(truncation, seed) for seed in range(BALANCING["seeds"] if truncation.is_random else 1)]
    converged = sum(loss < BALANCING["converged_below"] for loss in losses)
    row = {"kind": truncation.kind, "steps": truncation.steps, "losses": losses}
    return row | {"median": statistics.median(losses), "converged": converged}


def balance_once(truncation: Truncation, seed: int) -> float:
    """Return the final loss: the mean of the last tenth, or the one at which training was stopped."""
    system, draw, tail, done = Chain(), np.random.default_rng(seed), [], 0
    optimiser, memory = SLOWLY.build(system), system.initial_memory(1)
    while done < BALANCING["symbols"]:
        length = min(truncation.length(draw), BALANCING["symbols"] - done)
        y, after = truncation.read(system, torch.zeros(1, length, 0, dtype=torch.float64), memory)
        memory, losses = after.detach(), 0.5 * (y - 1).square()
        move(system, optimiser, SLOWLY, losses.sum(), done / BALANCING["symbols"])
        done += length
        tail += losses.flatten().tolist()
        if tail[-1] > BALANCING["stopped_above"]:
            return tail[-1]
    return statistics.fmean(tail[-BALANCING["symbols"] // 10 :])


def show_balancing(rows: list[dict[str, Any]]) -> None:
    print(f"\nInfluence balancing: the loss begins at {BALANCING['start_loss']}, seeds differ in where it is cut\n")
    print(" truncation   symbols   loss in the end   lowest   highest   converged")
    for row in rows:
        losses = f"{row['median']:18.2g}{min(row['losses']):9.2g}{max(row['losses']):10.2g}"
        print(f"{row['kind']:>11}{row['steps']:10}{losses}{row['converged']:8} of {len(row['losses'])}")


# ---- copy ------------------------------------------------------------------------------------------


def draw_rows(lag: int, count: int, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return symbols (B, T) and, where the marker asks for one, the symbol of `lag` steps before."""
    x, y = np.full((count, COPY["row"]), BLANK), np.full((count, COPY["row"]), IGNORED)
    for row in range(count):
        place = int(draw.integers(lag + 1))
        while place + lag < COPY["row"]:
            x[row, place], x[row, place + lag] = draw.integers(CUES), MARKER
            y[row, place + lag] = x[row, place]
            place += lag + 1 + int(draw.integers(5))
    return torch.from_numpy(x), torch.from_numpy(y)


def copy(lag: int, steps: int | None, memory: str) -> dict[str, Any]:
    accuracies = [copy_once(lag, steps, memory, seed) for seed in range(COPY["seeds"])]
    row = {"lag": lag, "steps": steps or "full", "memory": memory, "accuracies": accuracies}
    return row | {"median": statistics.median(accuracies)}


def copy_once(lag: int, steps: int | None, memory: str, seed: int) -> float:
    """Train, then return the share of symbols recalled in new rows."""
    torch.manual_seed(seed)
    model, draw = new_model(), np.random.default_rng(seed)
    if memory == "untrained":
        model.body.layers[:-1].requires_grad_(False)
    optimiser = QUICKLY.build(model)
    for done in range(0, COPY["symbols"], COPY["row"]):
        x, y = draw_rows(lag, COPY["rows"], draw)
        for loss in stretch_losses(model, x, y, steps, carries=memory != "not carried"):
            move(model, optimiser, QUICKLY, loss, done / COPY["symbols"])
    return accuracy(model, *draw_rows(lag, 200, draw))


def new_model() -> LanguageModel:
    return LanguageModel(LanguageConfig("gru", CUES + 2, width=COPY["width"], layers=1))


def stretch_losses(
    model: LanguageModel, x: Tensor, y: Tensor, steps: int | None, *, carries: bool = True
) -> Iterator[Tensor]:
    """Read rows chunk by chunk, with the memory carried and detached between them; skip chunks without a target."""
    truncation = Truncation("full") if steps is None else Truncation("regular", steps)
    length, memory = min(truncation.length(np.random.default_rng()), x.shape[1]), None
    for inputs, wanted in zip(x.split(length, dim=1), y.split(length, dim=1), strict=True):
        logits, after = truncation.read(model, inputs, memory)
        memory = after.detach() if carries else None
        if (wanted != IGNORED).any():
            yield F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def accuracy(model: LanguageModel, x: Tensor, y: Tensor) -> float:
    asked = y != IGNORED
    return float((model(x)[0].argmax(-1)[asked] == y[asked]).double().mean())


def gradient_norms(steps: int | None, lag: int = 15, rounds: int = 20) -> dict[str, Any]:
    """Return mean and spread of the norm of each chunk's gradient at the same, untrained weights."""
    torch.manual_seed(0)
    model, draw, norms = new_model(), np.random.default_rng(0), []
    for _ in range(rounds):
        for loss in stretch_losses(model, *draw_rows(lag, COPY["rows"], draw), steps):
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))
    mean, variance = statistics.fmean(norms), statistics.variance(norms)
    return {"steps": steps or "full", "stretches": len(norms), "mean_norm": mean, "variance": variance}


def copying_speeds(lag: int = 15) -> dict[str, float]:
    """Time the same rows for every chunk length, interleaved: symbols per second, updates included, one thread."""
    torch.set_num_threads(1)
    model, (x, y) = new_model(), draw_rows(lag, COPY["rows"], np.random.default_rng(0))
    optimiser = QUICKLY.build(model)

    def read(steps: int | None) -> None:
        for loss in stretch_losses(model, x, y, steps):
            move(model, optimiser, QUICKLY, loss, 0.5)

    times = interleave({str(steps or "full"): partial(read, steps) for steps in CHUNKS}, rounds=20)
    return {name: x.numel() / summary(seconds)[0] for name, seconds in times.items()}


def show_copying(rows: list[dict[str, Any]], gradients: list[dict[str, Any]], speeds: dict[str, float]) -> None:
    print(f"\nCopy: share of symbols recalled, median of {COPY['seeds']} seeds; chance {COPY['chance']}\n")
    print("            lag" + "".join(f"{lag:>8}" for lag in LAGS) + "   symbols/s   gradient norm   its variance")
    for found in gradients:
        same = [row for row in rows if (row["steps"], row["memory"]) == (found["steps"], "carried")]
        norm = f"{speeds[str(found['steps'])]:12,.0f}{found['mean_norm']:16.3f}{found['variance']:15.2g}"
        print(f"{found['steps']:>15}{cells(same)}{norm}")
    for control in CONTROLS:
        print(f"{'5, ' + control:>15}" + cells([row for row in rows if row["memory"] == control]))


def cells(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{row['median']:8.3f}" for row in rows)


# ---- both ------------------------------------------------------------------------------------------


def move(model: nn.Module, optimiser: torch.optim.Optimizer, optimise: Optimizer, loss: Tensor, share: float) -> None:
    """Update the weights once."""
    optimiser.zero_grad()
    loss.backward()
    optimise.clip(model.parameters())
    for group in optimiser.param_groups:
        group["lr"] = optimise.rate_at(share)
    optimiser.step()


def verdicts(balancing: list[dict[str, Any]], copying: list[dict[str, Any]]) -> dict[str, bool]:
    """Print the findings."""
    short = [row for row in balancing if row["kind"] == "regular" and row["steps"] <= 100]
    unbiased = [row for row in balancing if row["kind"] == "reweighted" and row["steps"] >= 10]
    spanned = [row for row in copying if row["steps"] == "full" or row["steps"] > row["lag"]]
    beyond = [row for row in copying if row not in spanned]
    found = {
        "regular truncation moves away": all(row["median"] > BALANCING["start_loss"] for row in short),
        "reweighted converges in the median": all(row["median"] < BALANCING["converged_below"] for row in unbiased),
        "copied where a stretch spans": all(is_copied(row) for row in spanned if row["memory"] == "carried"),
        "not copied elsewhere": not any(is_copied(row) for row in beyond if row["memory"] == "carried"),
        "not copied elsewhere unless carried": not any(
            is_copied(row) for row in beyond if row["memory"] == CONTROLS[0]
        ),
    }
    print("\n" + "\n".join(f"{name}: {'yes' if is_so else 'no'}" for name, is_so in found.items()))
    return found


def is_copied(row: dict[str, Any]) -> bool:
    return row["median"] >= COPY["success"]


if __name__ == "__main__":
    main()
