"""C74: A Transformer is computed in parallel, so it trains faster than a recurrent network, and with larger batches.

中文：Transformer 并行计算，因此训练比循环网络更快，并能使用更大的批量。
Seed: 004_87792308dac9c34b.txt:89
Budget: minutes
Expected: with as many parameters an LSTM reads more tokens a second on a CPU at every length, and with persistent kernels on a GPU too; per token the Transformer keeps more for the backward pass; what it gains is loss per token
预期：参数量相同时，LSTM 在 CPU 上各种长度下每秒读入的 token 都更多，用持久内核时在 GPU 上也是；Transformer 每个 token 为反向传播保留的内容更多；它的优势在于每个 token 的损失
Rule: with tokens a second of a Transformer over those of an LSTM, forward + backward: holds if the interval on this CPU is above 1 at every length and the GPU's ratios are too; holds if … (hardware that computes in parallel) where the GPU's are, and an interval on this CPU is below 1; does not hold if all of both are below 1; else not shown
Alone: yes
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from recollect.bench.timing import Work, interleave
from recollect.models.language import LanguageModel
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.fitting import WARM_UP, size_of
from recollect.story.judging import interval
from recollect.story.results import measured, not_measured
from recollect.story.saved_tensors import saved_bytes
from recollect.story.texts import characters, next_loss, sees_later, windows
from recollect.views.bilingual import Bilingual

GPU, WEIGHTS = "growth-cuda", {"lstm": 8, "transformer": 12}  # of a layer, times its width squared
WIDTHS = {"lstm": 64, "transformer": 52}
LENGTHS, TOKENS = (32, 128, 512, 2048), 2048
STEPS, SECONDS, GIVEN, HELD_OUT = 64, 1.0, 60_000, 8_000
Interval = tuple[float, float]


def run(budget: Budget) -> Result:
    saved = measured(GPU)
    if saved is None:
        return not_measured(GPU)
    text, symbols = characters(GIVEN)
    lengths = LENGTHS[:1] if budget.is_small else LENGTHS
    logs = {n: [math.log(ratio) for ratio in _ratios(symbols, n, 2 if budget.is_small else 5)] for n in lengths}
    ratios = {n: math.exp(statistics.fmean(values)) for n, values in logs.items()}
    intervals = {n: _exp(interval(values)) for n, values in logs.items()}
    gpu = _on_gpu(saved["rows"])
    seconds = 0.05 if budget.is_small else SECONDS
    losses = {name: [_loss(name, text, symbols, seed, seconds) for seed in range(budget.seeds)] for name in WIDTHS}
    ahead = [lstm - other for lstm, other in zip(losses["lstm"], losses["transformer"], strict=True)]
    kept = {name: _kept(name, symbols) for name in WIDTHS}
    every = interval([statistics.fmean(values[i] for values in logs.values()) for i in range(len(logs[lengths[0]]))])
    on_cpu = ", ".join(f"{n}: {ratio:.2f}" for n, ratio in ratios.items())
    on_gpu = ", ".join(f"{n}: {ratio:.2f}" for n, ratio in gpu.items())
    low, high = interval(ahead)
    sizes = [f"{size_of(_model(name, symbols)):,}" for name in WIDTHS]
    more = kept["transformer"] / kept["lstm"]
    return Result(
        verdict_of(list(intervals.values()), list(gpu.values())),
        Bilingual(
            f"Tokens a second, Transformer over LSTM ({sizes[1]} and {sizes[0]} parameters), by length: on one core {on_cpu}; on an H200, per weight of a layer, {on_gpu} (benchmarks/results/{GPU}.json). After {SECONDS:g} s of a core the Transformer's loss is "
            f"{statistics.fmean(ahead):+.2f} [{low:+.2f}, {high:+.2f}] nats below; for the backward pass it keeps {more:.1f} times as many bytes.",
            f"每秒 token 数，Transformer 与 LSTM 之比（参数量 {sizes[1]} 与 {sizes[0]}），按长度：单核 {on_cpu}；H200 上按每个权重计 {on_gpu}（benchmarks/results/{GPU}.json）。训练 {SECONDS:g} 秒后 LSTM 与 Transformer 的损失之差为 "
            f"{statistics.fmean(ahead):+.2f} [{low:+.2f}, {high:+.2f}] 奈特；反向传播所需保留的字节数是 {more:.1f} 倍。",
        ),
        math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values())),
        _exp(every),
        Control(Bilingual("if both were as fast", "若二者一样快"), 1.0),
        Check(
            Bilingual("no model looks ahead", "没有模型偷看后文"),
            not any(sees_later(model, text) for model in (_model(name, symbols) for name in WIDTHS)),
        ),
        condition=Bilingual("the hardware computes in parallel", "硬件并行计算"),
        chart=_chart(ratios, gpu),
        rows=[
            *(
                {"device": "cpu", "steps": n, "ratio": ratio, "interval": list(intervals[n])}
                for n, ratio in ratios.items()
            ),
            *({"device": "gpu", "steps": n, "ratio": ratio} for n, ratio in gpu.items()),
            {"seconds": seconds, "loss": {name: statistics.fmean(values) for name, values in losses.items()}},
            {"bytes_per_token": kept},
        ],
    )


def verdict_of(cpu: Sequence[Interval], gpu: Sequence[float]) -> Verdict:
    """Return the verdict of tokens a second, Transformer over LSTM: intervals on a CPU, ratios on a GPU, by length."""
    if min(gpu) > 1:
        if all(low > 1 for low, _ in cpu):
            return "holds"
        return "holds if" if any(high < 1 for _, high in cpu) else "not shown"
    return "does not hold" if max(gpu) < 1 and all(high < 1 for _, high in cpu) else "not shown"


def _exp(pair: Interval) -> Interval:
    return math.exp(min(pair[0], 700)), math.exp(min(pair[1], 700))


def _model(name: str, symbols: int) -> LanguageModel:
    return LanguageModel(name, symbols, width=WIDTHS[name], layers=2, heads=2)


def _ratios(symbols: int, steps: int, rounds: int) -> list[float]:
    """Return the LSTM's seconds over the Transformer's, for the same ids, of each round."""
    ids = torch.randint(symbols, (TOKENS // steps, steps + 1))
    works: dict[str, Work] = {name: _pass(_model(name, symbols), ids) for name in WIDTHS}
    times = interleave(works, rounds, 2, _processor)
    return [lstm / other for lstm, other in zip(times["lstm"], times["transformer"], strict=True)]


def _pass(model: LanguageModel, ids: Tensor) -> Work:
    def work() -> None:
        model.zero_grad(set_to_none=True)
        next_loss(model, ids).backward()

    return work


def _processor(work: Callable[[], Any]) -> float:
    """Return the seconds of a core that work takes: what else runs does not count."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _on_gpu(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Return by length the tokens a second and weight of one layer, Transformer over LSTM."""
    times = {}
    for name, weights in WEIGHTS.items():
        row = next(r for r in rows if r["axis"] == "T" and r["family"] == name and r["pass"] != "forward")
        times[name] = {n: ms / weights for n, ms in zip(row["sizes"], row["ms"], strict=True)}
    return {n: times["lstm"][n] / ms for n, ms in times["transformer"].items() if n in times["lstm"]}


def _loss(name: str, text: Tensor, symbols: int, seed: int, seconds: float) -> float:
    """Train for some seconds of a core; return the loss on the held-out text."""
    torch.manual_seed(seed)
    model = _model(name, symbols)
    optimizer = torch.optim.Adam(model.parameters())
    begun, update = time.process_time(), 0
    while (spent := (time.process_time() - begun) / seconds) < 1:
        update += 1
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * min(update / WARM_UP, 1.0) * (1 - spent)
        optimizer.zero_grad()
        next_loss(model, windows(text[:-HELD_OUT], 16, STEPS)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    held_out = text[-HELD_OUT:][: HELD_OUT // (STEPS + 1) * (STEPS + 1)].view(-1, STEPS + 1)
    with torch.no_grad():
        return float(next_loss(model, held_out))


def _kept(name: str, symbols: int) -> float:
    """Return the bytes that a token of 256 keeps for the backward pass, in the readable form."""
    body: Any = _model(name, symbols).body
    steps = 256
    vectors = torch.randn(1, steps, WIDTHS[name], requires_grad=True)
    return saved_bytes(body[1:-1], vectors) / steps


def _chart(cpu: dict[int, float], gpu: dict[int, float]) -> Chart:
    curves = [
        Curve(name, [(float(n), ratio) for n, ratio in found.items()])
        for name, found in (("one core", cpu), ("H200", gpu))
    ]
    return Chart(
        Bilingual("Tokens a second, Transformer over LSTM", "每秒 token 数，Transformer 与 LSTM 之比"),
        Bilingual("length", "长度"),
        Bilingual("ratio", "比值"),
        curves,
        log_x=True,
    )
