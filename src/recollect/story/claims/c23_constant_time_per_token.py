"""C23: When an RNN generates, a token takes the same time at any context, so that the total is linear in the length.

中文：RNN 推理时，每个 token 的耗时与上下文长度无关，总耗时与长度成线性关系。
Seed: 000_56d5b8bda4e4cf77.txt:116
Budget: seconds
Expected: from 1,024 to 16,384 tokens of context the time of a token of RNN, GRU and LSTM grows by at most 10 %, that of a Transformer with cached keys and values several times
预期：上下文从 1,024 增至 16,384 时，RNN、GRU、LSTM 每个 token 的耗时增长不超过 10%，带键值缓存的 Transformer 则增至数倍
Rule: does not hold if the RNN's time grows by more than 10 %; holds if that of RNN, GRU and LSTM grows by at most 10 % and the interval of the RNN's fitted exponent means less than 10 % too; else not shown
"""

from __future__ import annotations

from recollect.story.claim import Budget, Chart, Check, Control, Curve, Result, Verdict
from recollect.story.results import measured, not_measured
from recollect.views.bilingual import Bilingual

NAME = "growth"
RECURRENT, SHOWN = ("rnn", "gru", "lstm"), ("rnn", "gru", "lstm", "ttt-linear", "transformer")
FROM, TO, LIMIT = 1024, 16384, 1.1


def run(budget: Budget) -> Result:
    saved = measured(NAME)
    if saved is None:
        return not_measured(NAME)
    rows = {row["family"]: row for row in saved["rows"] if row["axis"] == "context"}
    times = {name: dict(zip(rows[name]["sizes"], rows[name]["ms"], strict=True)) for name in SHOWN}
    growth = {name: found[TO] / found[FROM] for name, found in times.items()}
    fitted, low, high = ((TO / FROM) ** rows["rnn"][name] for name in ("exponent", "low", "high"))
    figures = ", ".join(f"{name} {growth[name]:.2f}" for name in SHOWN)
    found = Bilingual(
        f"Time of a token at {TO:,} over that at {FROM:,}: {figures} (benchmarks/results/{NAME}.json).",
        f"上下文 {TO:,} 与 {FROM:,} 时每个 token 的耗时之比：{figures}（benchmarks/results/{NAME}.json）。",
    )
    chart = Chart(
        Bilingual("Time of one generated token", "生成一个 token 的时间"),
        Bilingual("tokens of context", "上下文 token 数"),
        Bilingual("ms", "毫秒"),
        [Curve(name, [(float(size), ms) for size, ms in times[name].items()]) for name in SHOWN],
        log_x=True,
        log_y=True,
    )
    return Result(
        verdict_of(growth["rnn"], max(growth[name] for name in RECURRENT), (low, high)),
        found,
        fitted,
        (low, high),
        Control(
            Bilingual("Transformer with cached keys and values", "带键值缓存的 Transformer"), growth["transformer"]
        ),
        Check(Bilingual("times of untrained models: no data are held out", "未训练模型的耗时：不涉及留出数据"), True),
        chart=chart,
        rows=[{"family": name, "ms": times[name]} for name in SHOWN],
    )


def verdict_of(growth: float, most: float, fitted: tuple[float, float]) -> Verdict:
    """Return the verdict of the RNN's growth, the largest of recurrent families, and the RNN's by its exponent."""
    if growth > LIMIT:
        return "does not hold"
    return "holds" if most <= LIMIT and fitted[1] <= LIMIT else "not shown"
