"""Our recurrent kernels beside torch.nn on a Hopper GPU, each as it is called and inside a CUDA graph.

Same weights and inputs; contenders are interleaved (ABBA); CUDA events; µs per time step. A call finds the GPU idle; at
the goals' sizes four calls in a row are timed as well, as a training makes them: the host prepares one while the GPU
works on another. Errors are relative, against torch.nn in float64, of all outputs, of dx and of the first layer's
dW_hh. `walk` is the persistent kernel alone, without the large matmuls before and after it. float32 is multiplied in
tf32, as cuDNN is allowed to by default: ours and torch.nn's. `chosen` is whether our kernels are used, or torch's where
float32 is in full precision or no plan fits. The goals' sizes read 1024 steps, the rest of the grid 256. Rows are
printed and saved as soon as they are measured; those of a trial are not saved.

    python benchmarks/recurrent.py                        the goals' sizes and the whole grid
    python benchmarks/recurrent.py --quick                the goals' sizes; other rows are kept
    python benchmarks/recurrent.py --quick --rounds 5     a trial
    python benchmarks/recurrent.py --only lstm,bfloat16,64,1024        a trial; of a stack: …,LAYERS,DIRECTIONS
    python benchmarks/recurrent.py --tune                 the persistent kernel alone under other plans, few seconds
    python benchmarks/recurrent.py --tune-chunks          concurrent persistent kernels, chunks of time
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import partial
from itertools import islice, product
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor, nn

import recurrent_cases
from common import COMMIT, earlier, save_result
from recollect import GRU, LSTM, RNN
from recollect.accel.cell_inputs import CellInputs
from recollect.accel.cuda import nvrtc
from recollect.accel.cuda.driver import sources
from recollect.accel.cuda.recurrent import (
    chunks as pieces,
    execution as launching,
    inputs as preparing,
    persistent,
    plan as plans,
)
from recollect.accel.cuda.recurrent.workspace import Extent
from recollect.core.capture import as_graph
from recurrent_cases import PASSES, Case, Effort, effort_for, line, merge, summarise

STEPS, DEVICE = 1024, torch.device("cuda", 0)
KINDS: dict[str, Any] = {"lstm": LSTM, "gru": GRU, "rnn_tanh": RNN}
IN_A_ROW = 4  # calls
CHUNKS = (2048, 4096, 8192, 16384, 32768)  # bytes, for --tune
NAME = "recurrent"


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if not torch.cuda.is_available():
        print("needs a CUDA GPU")
        return 2
    if options.tune:
        return tune([("lstm", "bfloat16", 64, 1024), ("lstm", "float16", 16, 1024)], options.rounds or 10)
    if options.tune_chunks:
        return tune_chunks(options.rounds or 10)
    return measure_all(cases(options), options.rounds, is_trial=is_trial(options))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=recurrent_cases.parse, help="cell,dtype,batch,hidden[,layers,directions]")
    parser.add_argument("--rounds", type=int, help="for a trial")
    for name in ("--quick", "--tune", "--tune-chunks"):
        parser.add_argument(name, action="store_true")
    return parser.parse_args(arguments)


def cases(options: argparse.Namespace) -> list[Case]:
    if options.only:
        return [options.only]
    return recurrent_cases.GOALS if options.quick else recurrent_cases.ALL


def is_trial(options: argparse.Namespace) -> bool:
    return bool(options.only or options.rounds)


def measure_all(found: list[Case], rounds: int | None, *, is_trial: bool) -> int:
    compile_ahead(found)
    before, rows = earlier(NAME), []
    print(recurrent_cases.COLUMNS.format(*recurrent_cases.HEAD), flush=True)
    for case in found:
        for row in measure(case, effort_for(case, rounds)):
            rows.append(row)
            print(line(row), flush=True)
            if not is_trial:
                save_result(NAME, merge(before, rows), setting={"width": "H"})
    return 0


def compile_ahead(found: list[Case]) -> None:
    """Compile what the cases are likely to need, in one process per core: a single process takes minutes."""
    machine: Any = persistent.find_machine(DEVICE)
    if machine is None:
        return
    needed = {kernel for case in found for kernel in kernels_for(case, machine.chip)}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_one, needed, [machine.arch] * len(needed)))


def kernels_for(case: Case, chip: plans.Chip) -> Iterator[tuple[str, tuple[tuple[str, int], ...]]]:
    """Return the sources and macros of the two plans that rank first, for each direction."""
    for direction in ("forward", "backward"):
        kind = {"half": case.dtype == "float16", "tf32": case.dtype == "float32"}
        offered = plans.offer(direction, case.cell, batch=case.batch, hidden=case.hidden, chip=chip, **kind)
        yield from ((f"{direction}.cu", tuple(plan.macros.items())) for plan in islice(offered, 2))


def compile_one(kernel: tuple[str, tuple[tuple[str, int], ...]], arch: str) -> None:
    nvrtc.build(sources(), kernel[0], dict(kernel[1]), arch)


def measure(case: Case, effort: Effort) -> Iterator[dict[str, Any]]:
    dtype = getattr(torch, case.dtype)
    torch.manual_seed(0)
    ours = build(case, DEVICE).to(dtype)
    theirs = ours.to_torch()
    x = torch.randn(case.batch, effort.steps, case.hidden, device=DEVICE).to(dtype).requires_grad_()
    weigh = torch.randn(case.batch, effort.steps, case.hidden * case.directions, device=DEVICE).to(dtype)
    facts = case._asdict() | {
        "goal": case in recurrent_cases.GOALS,
        "steps": effort.steps,
        "errors": compare(ours, theirs, x, weigh),
        "commit": COMMIT,
    }
    for which in PASSES:
        trains = which != "forward"
        chosen = is_chosen(case, x, trains=trains)
        contenders = {
            "ours": job(ours, x, weigh, trains=trains),
            "ours in a graph": as_graph(job(ours, x, weigh, trains=trains)),
            "torch.nn": job(theirs, x, weigh, trains=trains),
            "torch.nn in a graph": as_graph(job(theirs, x, weigh, trains=trains)),
        }
        if chosen and case in recurrent_cases.GOALS and not case.is_stack:
            contenders["walk"] = walk(ours, case.cell, case.batch, dtype, back=trains)
        times = interleave_events(contenders, effort)
        if case in recurrent_cases.GOALS:
            times |= times_in_a_row({who: contenders[who] for who in ("ours", "torch.nn")}, effort)
        persistent.check()
        how = {"chosen": chosen, "plan": plan(case, trains=trains) if chosen else "plain"}
        yield facts | {"pass": which} | how | summarise(times, effort.steps)


def build(case: Case, device: torch.device) -> Any:
    """Return a layer, or a stack of them."""
    kind, sizes = KINDS[case.cell], (case.hidden, case.hidden)
    if not case.is_stack:
        return kind(*sizes, device=device)
    return kind.stack(*sizes, case.layers, bidirectional=case.directions == 2, device=device)


def is_chosen(case: Case, x: Tensor, *, trains: bool) -> bool:
    with torch.set_grad_enabled(trains):
        return persistent.takes(case.cell, x, case.hidden)


def tune(found: list[tuple[str, str, int, int]], rounds: int) -> int:
    """Time the persistent kernels alone under plans that exchange smaller and larger chunks, and print their errors."""
    for cell, name, batch, hidden in found:
        layer = KINDS[cell](hidden, hidden, device=DEVICE).to(getattr(torch, name))
        x = torch.randn(batch, STEPS, hidden, device=DEVICE).to(getattr(torch, name)).requires_grad_()
        for plans.CHUNK_BYTES in CHUNKS:
            persistent._plans.clear()
            walks = {back: walk(layer, cell, batch, x.dtype, back=back) for back in (False, True)}
            times = interleave_events({str(back): work for back, work in walks.items()}, Effort(STEPS, rounds, 0.0, 3))
            us = {back: statistics.median(t) * 1000 / STEPS for back, t in times.items()}
            errors = compare(layer, layer.to_torch(), x, torch.randn_like(x[..., :hidden]))
            persistent.check()
            seen = ", ".join(f"{key} {ours:.4f} ({theirs:.4f})" for key, (ours, theirs) in errors.items())
            speed = f"forward {us['False']:.2f}, back {us['True']:.2f} µs a step"
            print(
                f"{cell} {name} B{batch} H{hidden}, chunks of {plans.CHUNK_BYTES} bytes: {speed}; errors {seen}",
                flush=True,
            )
    return 0


def tune_chunks(rounds: int) -> int:
    """Time both passes in a CUDA graph, with smaller or larger chunks of time and more or fewer kernels at once."""
    for case in [c for c in recurrent_cases.GOALS if c.is_stack or c.hidden == 1024]:
        dtype = getattr(torch, case.dtype)
        layer = build(case, DEVICE).to(dtype)
        x = torch.randn(case.batch, STEPS, case.hidden, device=DEVICE).to(dtype).requires_grad_()
        weigh = torch.randn(case.batch, STEPS, case.hidden * case.directions, device=DEVICE).to(dtype)
        for at_once, most in product((1, 2, 3, 4) if case.is_stack else (1,), (1, 2, 4, 8, 16)):
            persistent.AT_ONCE = {"forward": at_once, "backward": at_once}
            pieces.MOST = pieces.MOST_BESIDE = most
            pieces.SHORTEST, pieces.WORTH = STEPS // most, {"forward": 1, "backward": 1}
            persistent.find_way.cache_clear(), persistent._most_at_once.cache_clear()
            jobs = {which: as_graph(job(layer, x, weigh, trains=which != "forward")) for which in PASSES}
            times = interleave_events(jobs, Effort(STEPS, rounds, 0.0, 2))
            persistent.check()
            us = ", ".join(f"{which} {statistics.median(t) * 1000 / STEPS:.2f}" for which, t in times.items())
            print(f"{case}: {at_once} at once, {most} chunks: {us} µs a step", flush=True)
    return 0


def job(layer: nn.Module, x: Tensor, weigh: Tensor, *, trains: bool) -> Callable[[], Any]:
    """Return a forward pass, or where it trains a pass that returns the gradients of inputs and weights."""
    wanted = (x, *layer.parameters())

    def train() -> Any:
        return torch.autograd.grad(layer(x)[0], wanted, weigh)

    def read() -> Any:
        with torch.no_grad():
            return layer(x)[0]

    return train if trains else read


def walk(layer: Any, cell: str, batch: int, dtype: torch.dtype, *, back: bool) -> Callable[[], Any]:
    """Return the forward or the backward persistent kernel alone, on uninitialized logits."""
    weight, nothing = layer.weight_hh.detach(), CellInputs(*[None] * len(CellInputs._fields))
    given = nothing._replace(x=weight.new_empty(batch, STEPS, 0), w_ih=weight[:, :0], w_hh=weight)
    extent = Extent(cell, STEPS, batch, 0, layer.hidden, dtype)
    forward, machine = persistent._ready("forward", cell, dtype, batch, layer.hidden, DEVICE)

    def ahead() -> Any:
        rooms = preparing.prepare_forward(machine, forward, given, extent, keeps=back)
        own = launching.Forward(machine, forward, extent, rooms, None, keeps=back, cuts=(0, STEPS))
        own.run(0)
        return own

    if not back:
        return ahead
    seen = ahead().seen
    d_y = torch.randn_like(seen.y[1:])
    backward, _ = persistent._ready("backward", cell, dtype, batch, layer.hidden, DEVICE)

    def astern() -> Any:
        room = preparing.prepare_backward(machine, backward, weight, extent, nothing)
        launching.Backward(machine, backward, extent, seen, room, d_y, (None, None), cuts=(0, STEPS)).run(0)

    return astern


def plan(case: Case, *, trains: bool) -> str:
    cell, name, batch, hidden, *many = case
    direction = "backward" if trains else "forward"
    extent = Extent(cell, STEPS, batch, hidden, hidden, getattr(torch, name))
    machine, is_pile = persistent.find_machine(DEVICE), case.layers > 1
    _, p, at_once, _ = persistent.find_way(direction, machine, extent, DEVICE, max(many), is_pile)
    layout = f"{p.groups} x {p.blocks} blocks, {p.rows} rows, clusters of {p.cluster}{', L2' if p.through_l2 else ''}"
    return f"{at_once} of {layout}" if at_once > 1 else layout


def compare(ours: nn.Module, theirs: nn.RNNBase, x: Tensor, weigh: Tensor) -> dict[str, list[float]]:
    """Return the relative errors of y, dx and dW_hh: ours, torch's."""
    exact = results(deepcopy(theirs).double(), x.detach().double().requires_grad_(), weigh.double())
    found, library = results(ours, x, weigh), results(theirs, x, weigh)
    return {
        name: [((r[name].double() - exact[name]).norm() / exact[name].norm()).item() for r in (found, library)]
        for name in exact
    }


def results(layer: nn.Module, x: Tensor, weigh: Tensor) -> dict[str, Tensor]:
    y = layer(x)[0]
    weight = next(p for name, p in layer.named_parameters() if "weight_hh" in name)
    dx, dw = torch.autograd.grad(y, (x, weight), weigh)
    return {"y": y.detach(), "dx": dx, "dw": dw}


def interleave_events(contenders: dict[str, Callable[[], Any]], effort: Effort) -> dict[str, list[float]]:
    """Time by CUDA events, interleaved (ABBA), so that none always follows the same; return milliseconds by name."""
    for _ in range(effort.warmup):
        for work in contenders.values():
            work()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    begun, rounds, names = time.perf_counter(), 0, list(contenders)
    while rounds < effort.rounds or time.perf_counter() - begun < effort.seconds:
        for name in names:
            times[name].append(time_once(contenders[name]))
        rounds += 1
        names.reverse()
    return times


def times_in_a_row(contenders: dict[str, Callable[[], Any]], effort: Effort) -> dict[str, list[float]]:
    """Time calls without a sync between them; return milliseconds of one, by name."""
    rows = {f"{name} in a row": partial(again, work) for name, work in contenders.items()}
    times = interleave_events(rows, effort._replace(rounds=-(-effort.rounds // 3), warmup=0))
    return {name: [each / IN_A_ROW for each in found] for name, found in times.items()}


def again(work: Callable[[], Any]) -> None:
    for _ in range(IN_A_ROW):
        work()


def time_once(work: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


if __name__ == "__main__":
    sys.exit(main())
