"""Our recurrent kernels beside torch.nn on a Hopper GPU, each as it is called and inside a CUDA graph.

Same weights and inputs; contenders take turns; CUDA events; µs per time step. Errors are relative, against torch.nn in
float64, of all outputs and of dW_hh. `walk` is the kernel alone, without the large products before and after it.
Rows are printed and saved as they come.

    python benchmarks/recurrent.py                        the whole grid
    python benchmarks/recurrent.py --quick                the goals' sizes, few rounds
    python benchmarks/recurrent.py --only lstm,bfloat16,64,1024
    python benchmarks/recurrent.py --tune                 the walk alone under other plans, few seconds
    python benchmarks/recurrent.py --tags …               exchange by tagged words instead of counters
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from common import save_result
from recollect import GRU, LSTM, RNN
from recollect.kernels import launching, persistent, plans, preparing
from recollect.kernels.recurrences import Given

STEPS, DEVICE = 1024, torch.device("cuda", 0)
KINDS = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN}
QUICK = [("lstm", "bfloat16", 64, 1024), ("lstm", "bfloat16", 64, 512), ("lstm", "bfloat16", 64, 256)]
QUICK += [("gru", "bfloat16", 64, 1024), ("lstm", "float16", 16, 1024), ("rnn_tanh", "float16", 64, 256)]
HIDDEN, BATCH = (64, 128, 200, 256, 512, 650, 1024, 1500), (1, 16, 64, 128)
WAYS = [(False, 4), (False, 8), (False, 16), (False, 32), (True, 8), (True, 16), (True, 32)]
COLUMNS = "{:9}{:10}{:>4}{:>6} {:18}{:>8}{:>8}{:>8}{:>8}{:>8}{:>7}{:>7}{:>8}  {}"

Case = tuple[str, str, int, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="cell,dtype,batch,hidden")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--tags", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a CUDA GPU")
        return 2
    plans.PREFER_TAGS = options.tags
    if options.tune:
        return tune([("lstm", "bfloat16", 64, 1024), ("lstm", "float16", 16, 1024)], options.rounds or 10)
    rounds = options.rounds or (5 if options.quick else 30)
    rows: list[dict[str, Any]] = []
    heads = ("ours", "graph", "torch", "graph", "walk", "x", "x graph", "spread")
    print(COLUMNS.format("cell", "dtype", "B", "H", "pass", *heads, "errors: ours, torch"), flush=True)
    for case in cases(options):
        for row in measure(case, rounds):
            rows.append(row)
            print(line(row), flush=True)
            if not options.quick and not options.only:
                save_result("recurrent", rows, setting={"steps": STEPS, "rounds": rounds, "width": "H"})
    return 0


def cases(options: argparse.Namespace) -> Iterator[Case]:
    if options.only:
        cell, dtype, batch, hidden = options.only.split(",")
        yield cell, dtype, int(batch), int(hidden)
    elif options.quick:
        yield from QUICK
    else:
        yield from QUICK
        grid = product(("lstm", "gru", "rnn_tanh"), ("bfloat16", "float16"), BATCH, HIDDEN)
        yield from (case for case in grid if case not in QUICK)


def measure(case: Case, rounds: int) -> Iterator[dict[str, Any]]:
    cell, name, batch, hidden = case
    dtype = getattr(torch, name)
    torch.manual_seed(0)
    ours = KINDS[cell](hidden, hidden, device=DEVICE).to(dtype)
    theirs = ours.to_torch()
    x = torch.randn(batch, STEPS, hidden, device=DEVICE).to(dtype).requires_grad_()
    weigh = torch.randn(batch, STEPS, hidden, device=DEVICE).to(dtype)
    if not persistent.takes(cell, x, hidden):
        print(case, "is not taken:", persistent.REASONS, flush=True)
        return
    facts = {"cell": cell, "dtype": name, "batch": batch, "hidden": hidden, "steps": STEPS}
    facts |= {"errors": compare(ours, theirs, x, weigh)}
    for which in ("forward", "forward + backward"):
        trains = which != "forward"
        contenders = {
            "ours": job(ours, x, weigh, trains=trains),
            "ours in a graph": captured(job(ours, x, weigh, trains=trains)),
            "torch.nn": job(theirs, x, weigh, trains=trains),
            "torch.nn in a graph": captured(job(theirs, x, weigh, trains=trains)),
            "walk": walk(ours, cell, batch, dtype, back=trains),
        }
        times = interleave_events(contenders, rounds)
        persistent.check()
        yield facts | {"pass": which, "plan": plan(case, trains=trains), **summarise(times)}


def tune(found: list[Case], rounds: int) -> int:
    """Time the walks alone under plans that differ in how blocks exchange, and look at the errors of each."""
    for cell, name, batch, hidden in found:
        layer = KINDS[cell](hidden, hidden, device=DEVICE).to(getattr(torch, name))
        x = torch.randn(batch, STEPS, hidden, device=DEVICE).to(getattr(torch, name)).requires_grad_()
        for plans.PREFER_TAGS, size in WAYS:
            plans.TILES_PER_CHUNK = plans.CARRIED = size
            persistent._plans.clear()
            walks = {back: walk(layer, cell, batch, x.dtype, back=back) for back in (False, True)}
            times = interleave_events({str(back): work for back, work in walks.items()}, rounds)
            us = {back: statistics.median(t) * 1000 / STEPS for back, t in times.items()}
            errors = compare(layer, layer.to_torch(), x, torch.randn_like(x[..., :hidden]))
            persistent.check()
            way = f"tags, {size} registers a chunk" if plans.PREFER_TAGS else f"counters, {size} tiles a chunk"
            seen = ", ".join(f"{key} {ours:.4f} ({theirs:.4f})" for key, (ours, theirs) in errors.items())
            speed = f"forward {us['False']:.2f}, back {us['True']:.2f} µs a step"
            print(f"{cell} {name} B{batch} H{hidden} {way}: {speed}; errors {seen}", flush=True)
    return 0


def job(layer: nn.Module, x: Tensor, weigh: Tensor, *, trains: bool) -> Callable[[], Any]:
    """Read, and where it trains differentiate with respect to inputs and weights."""
    wanted = (x, *layer.parameters())

    def train() -> Any:
        return torch.autograd.grad(layer(x)[0], wanted, weigh)

    def read() -> Any:
        with torch.no_grad():
            return layer(x)[0]

    return train if trains else read


def captured(work: Callable[[], Any]) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def walk(layer: Any, cell: str, batch: int, dtype: torch.dtype, *, back: bool) -> Callable[[], Any]:
    """The walk forward alone, or the walk back alone."""
    slots = 1 if cell.startswith("rnn") else 4
    logits = torch.randn(STEPS, batch, layer.hidden, slots, device=DEVICE).to(dtype)
    hidden = torch.zeros(batch, layer.hidden, device=DEVICE)
    state = torch.zeros_like(hidden) if cell == "lstm" else None
    weight = layer.weight_hh.detach()
    given = Given(logits.new_empty(batch, STEPS, 0), hidden, state, weight[:, :0], weight, None, None)
    forward, machine = persistent._ready("forward", cell, dtype, batch, layer.hidden, DEVICE)

    def ahead() -> Any:
        ready, _, _ = preparing.prepare_forward(machine, forward, given, dtype)
        return launching.run_forward(machine, forward, logits, ready, None, keeps=back)

    if not back:
        return ahead
    seen, _, _ = ahead()
    d_y = torch.randn_like(seen.y[1:])
    backward, _ = persistent._ready("backward", cell, dtype, batch, layer.hidden, DEVICE)

    def astern() -> Any:
        ready = preparing.prepare_backward(machine, backward, weight, batch, dtype)
        return launching.run_backward(machine, backward, seen, ready, d_y, None, None)

    return astern


def plan(case: Case, *, trains: bool) -> str:
    cell, name, batch, hidden = case
    direction = "backward" if trains else "forward"
    p = persistent.find_plan(direction, cell, getattr(torch, name), batch, hidden, DEVICE)
    assert p is not None
    return f"{p.groups} x {p.blocks} blocks, {p.rows} rows, clusters of {p.cluster}{', L2' if p.through_l2 else ''}"


def compare(ours: nn.Module, theirs: nn.RNNBase, x: Tensor, weigh: Tensor) -> dict[str, list[float]]:
    """Relative errors of y, dx and dW_hh: ours, torch's."""
    exact = results(deepcopy(theirs).double(), x.detach().double().requires_grad_(), weigh.double())
    found, library = results(ours, x, weigh), results(theirs, x, weigh)
    return {
        name: [((r[name].double() - exact[name]).norm() / exact[name].norm()).item() for r in (found, library)]
        for name in exact
    }


def results(layer: nn.Module, x: Tensor, weigh: Tensor) -> dict[str, Tensor]:
    y = layer(x)[0]
    weight = next(p for name, p in layer.named_parameters() if name.startswith("weight_hh"))
    dx, dw = torch.autograd.grad(y, (x, weight), weigh)
    return {"y": y.detach(), "dx": dx, "dw": dw}


def interleave_events(contenders: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Time in turn by CUDA events; milliseconds by name."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(-3, rounds):
        for name, work in contenders.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            work()
            end.record()
            end.synchronize()
            if i >= 0:
                times[name].append(start.elapsed_time(end))
    return times


def summarise(times: dict[str, list[float]]) -> dict[str, Any]:
    """µs per step by the median, our widest spread, and how many times faster than each peer's best way."""
    each = {name: statistics.median(t) * 1000 / STEPS for name, t in times.items()}
    ours = times["ours"]
    low, middle, high = statistics.quantiles(ours, n=4) if len(ours) > 1 else ours * 3
    return {
        "us_per_step": each,
        "spread": (high - low) / middle,
        "ratio": each["torch.nn"] / each["ours"],
        "ratio_in_graphs": each["torch.nn in a graph"] / each["ours in a graph"],
    }


def line(row: dict[str, Any]) -> str:
    us = [f"{value:.2f}" for value in row["us_per_step"].values()]
    errors = " ".join(f"{name} {a:.4f} {b:.4f}" for name, (a, b) in row["errors"].items())
    ratios = (f"{row['ratio']:.2f}", f"{row['ratio_in_graphs']:.2f}", f"{row['spread']:.0%}")
    head = (row["cell"], row["dtype"], row["batch"], row["hidden"], row["pass"])
    return COLUMNS.format(*head, *us, *ratios, f"{errors} | {row['plan']}")


if __name__ == "__main__":
    sys.exit(main())
