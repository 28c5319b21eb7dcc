"""C24: An RNN is hard to compute in parallel: a sentence of 100 words takes 100 steps, one after the other.

中文：RNN 难以并行：一个 100 个词的句子要依次计算 100 步。
Seed: 000_56d5b8bda4e4cf77.txt:132, 003_d30a3ba1164faeec.txt:139, 004_87792308dac9c34b.txt:87
Budget: seconds
Expected: the longest chain of dependent matrix products has 100 of them for 100 words in an RNN, and in attention as many at every length; on a GPU one row of 128 n steps takes many times as long as 128 rows of n
预期：100 个词时 RNN 中最长的依赖链含 100 次矩阵乘法，注意力的链长与长度无关；在 GPU 上，1 行 128 n 步的耗时是 128 行 n 步的许多倍
Rule: holds if the chain of the RNN is exactly 100 for 100 words, that of attention does not grow, and the smallest GPU ratio at equal tokens is above 2; does not hold if the chain is shorter or the largest ratio is below 1.5; else not shown
"""

from __future__ import annotations

from typing import Any

import torch

from recollect.core.record import readable
from recollect.core.types import AnyLayer
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

NAME, WIDTH, WORDS = "recurrent", 8, 100
LENGTHS = (5, 10, 25, 50, WORDS)
PRODUCTS = ("AddmmBackward0", "MmBackward0", "BmmBackward0")
ONE, MANY = 1, 128  # rows of a batch


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    chains = {name: {n: _chain(layer, n) for n in LENGTHS} for name, layer in _layers().items()}
    ratios = {path: _at_equal_tokens(saved["rows"], path) for path in ("torch.nn in a graph", "ours in a graph")}
    recurrent, added = chains["rnn"][WORDS], chains["attention"][WORDS] - chains["attention"][LENGTHS[0]]
    every = [ratio for found in ratios.values() for ratio in found]
    ranges = {path: f"{min(found):.0f} to {max(found):.0f}" for path, found in ratios.items()}
    found = Bilingual(
        f"{WORDS} words: {recurrent} dependent matrix products in an RNN, {chains['attention'][WORDS]} in attention. An H200 takes {ranges['torch.nn in a graph']} times (torch.nn), {ranges['ours in a graph']} times (ours) as long for 1 row of {MANY} n steps as for {MANY} rows of n (LSTM, benchmarks/results/{NAME}.json).",
        f"{WORDS} 个词：RNN 有 {recurrent} 次依次相关的矩阵乘法，注意力为 {chains['attention'][WORDS]} 次。在 H200 上，1 行 {MANY} n 步的耗时是 {MANY} 行 n 步的 {ranges['torch.nn in a graph']} 倍（torch.nn）、{ranges['ours in a graph']} 倍（本项目）（LSTM，benchmarks/results/{NAME}.json）。".replace(
            " to ", " 至 "
        ),
    )
    chart = Chart(
        Bilingual("Longest chain of dependent matrix products", "最长的矩阵乘法依赖链"),
        Bilingual("words", "词数"),
        Bilingual("matrix products", "矩阵乘法次数"),
        [Curve(name, [(float(n), float(length)) for n, length in chain.items()]) for name, chain in chains.items()],
    )
    return Result(
        verdict_of(recurrent, added, every),
        found,
        min(every),
        (min(every), max(every)),
        Control(Bilingual("if only the number of tokens counted", "若只取决于 token 总数"), 1.0),
        Check(Bilingual("no data are held out", "不涉及留出数据"), True),
        chart=chart,
        rows=[{"path": path, "ratios": found} for path, found in ratios.items()],
    )


def verdict_of(recurrent: int, added: int, ratios: list[float]) -> Verdict:
    """Return the verdict of the RNN's chain for 100 words, what words add to attention's, and times at equal tokens."""
    if recurrent < WORDS or max(ratios) < 1.5:
        return "does not hold"
    return "holds" if recurrent == WORDS and added == 0 and min(ratios) > 2 else "not shown"


def _layers() -> dict[str, AnyLayer]:
    return {"rnn": RNN(WIDTH, WIDTH), "attention": SelfAttention(WIDTH, 1)}


def _chain(layer: AnyLayer, words: int) -> int:
    """Return the most matrix products on one path through the graph of the last output."""
    with readable():
        y = layer(torch.randn(1, words, WIDTH))[0][:, -1]
    depth: dict[Any, int] = {}
    open_nodes = [y.grad_fn]
    while open_nodes:
        node = open_nodes[-1]
        before = [one for one, _ in node.next_functions if one is not None]
        unknown = [one for one in before if one not in depth]
        if unknown:
            open_nodes += unknown
        else:
            own = int(open_nodes.pop().name() in PRODUCTS)
            depth[node] = own + max((depth[one] for one in before), default=0)
    return depth[y.grad_fn]


def _at_equal_tokens(rows: list[dict[str, Any]], path: str) -> list[float]:
    """Return by hidden size how much longer one row of 128 n steps takes than 128 rows of n: forward + backward."""
    chosen = [row for row in rows if row["cell"] == "lstm" and row["pass"] != "forward" and row["layers"] == 1]
    short = [row for row in chosen if row["steps"] == 256]
    one, many = (
        {_size(row): row["us_per_step"][path] for row in short if row["batch"] == size} for size in (ONE, MANY)
    )
    return [MANY * one[size] / many[size] for size in one if size in many]


def _size(row: dict[str, Any]) -> tuple[str, int]:
    return row["dtype"], row["hidden"]
