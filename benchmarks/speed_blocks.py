"""The tables of docs/speed: how cost grows, and the benchmarks that not every machine has run."""

from __future__ import annotations

from tables import Result, Say, join, table

AXES = ("T", "H", "B", "layers", "context")
BOTH, FORWARD, GENERATION = "forward + backward", "forward", "generation"
GROWTH_NOTE = (
    "The exponent b of time ∝ size^b: least squares on the logarithms of the medians over the upper half of the sizes; "
    "± half the interquartile range of the {rounds} rounds' own exponents; in brackets what theory says of sizes "
    "without end, and after a semicolon what it says of these sizes. Base: T {T}, H {H}, B {B}, one layer; sizes up to "
    "{most}. {dtype}, heads of {head_width}, {threads} threads. "
    "The interquartile range of a fitted size's times is at most {spread:.0%} of their median in half of the cells, "
    "and {widest:.0%} at the widest."
)
DECODING_NOTE = "Batch 1, tokens/s, medians of turns in one run, {threads} threads."
RECURRENCES_NOTE = (
    "Forward + backward, medians of turns in one run, {threads} threads; the peak is that of one large product in the "
    "same dtype and run."
)
LEADS = {  # before a table that is not always there
    "growth_cuda": "On a GPU:",
    "decoding": "Generation at batch 1, beside a torch loop and transformers' `generate`:",
    "recurrences": "Recurrent layers on a CPU at other sizes, forward + backward:",
}
CHINESE = {
    LEADS["growth_cuda"]: "GPU 上：",
    LEADS["decoding"]: "批量 1 的生成，对照 torch 逐步循环与 transformers 的 `generate`：",
    LEADS["recurrences"]: "CPU 上其他尺寸的循环层，前向 + 反向：",
    RECURRENCES_NOTE: "前向 + 反向，同一次运行中轮流计时取中位数，{threads} 个线程；峰值为同次同型的一个大矩阵乘积。",
    "model, way": "模型与方式",
    "dtype": "数值类型",
    "ours, ms": "我们，毫秒",
    "of the peak": "占峰值",
    BOTH: "前向 + 反向",
    FORWARD: "前向",
    "context": "上下文（一个词元）",
    "greedy": "贪心",
    "sampled": "采样",
    "how": "方式",
    "theirs": "对方",
    GROWTH_NOTE: "用时 ∝ 规模^b 的指数 b：在规模的上半段，对各中位数的对数作最小二乘；"
    "± 为 {rounds} 轮各自指数的四分位距之半；括号内是规模无限增大时的理论值，分号后是在这些规模上的理论值。"
    "基准：T {T}，H {H}，B {B}，一层；规模最大到 {most}。{dtype}，每头宽 {head_width}，{threads} 线程。"
    "半数的格中，所用各规模用时的四分位距不超过中位数的 {spread:.0%}，最大 {widest:.0%}。",
    DECODING_NOTE: "批量 1，词元/秒，同一次运行中轮流计时取中位数，{threads} 线程。",
}


def growth_block(result: Result, say: Say) -> str:
    rows, setting = result["rows"], result["setting"]
    both = f"{growth_table(rows, BOTH, say)}\n\n{growth_table(rows, FORWARD, say)}"
    spreads = sorted(row["spread"] for row in rows)
    most: dict[str, int] = {}
    for row in rows:
        most[row["axis"]] = max(most.get(row["axis"], 0), *row["sizes"])
    sizes = ", ".join(f"{name_of(axis, say)} {size:,}" for axis, size in most.items())
    facts = {**setting["base"], **setting, "most": sizes, "spread": spreads[len(spreads) // 2], "widest": spreads[-1]}
    return join(both, say(GROWTH_NOTE).format(**facts), result, say)


def growth_table(rows: list[Result], task: str, say: Say) -> str:
    """Give the exponents of one pass; those of generation stand beside forward + backward."""
    shown = {(row["family"], row["axis"]): row for row in rows if row["pass"] == task}
    if task == BOTH:
        shown |= {(row["family"], row["axis"]): row for row in rows if row["pass"] == GENERATION}
    axes = [axis for axis in AXES if any(axis == of for _, of in shown)]
    families = list(dict.fromkeys(family for family, _ in shown))
    head = [say(task), *(name_of(axis, say) for axis in axes)]
    return table(head, [[family, *(cell(shown[family, axis]) for axis in axes)] for family in families], texts=1)


def name_of(axis: str, say: Say) -> str:
    return say(axis) if len(axis) > 1 else axis


def cell(row: Result) -> str:
    theory = f"{row['theory']}" + (f"; {row['theory_here']:.2f}" if "theory_here" in row else "")
    return f"{round(row['exponent'], 2) + 0.0:.2f} ± {(row['high'] - row['low']) / 2:.2f} ({theory})"


def decoding_block(result: Result, say: Say) -> str:
    head = [say("model, way"), say("ours"), say("theirs"), say("faster")]
    rows = []
    for row in result["rows"]:
        speeds = [f"{row[who]['tokens_per_s']:,.0f}" for who in ("ours", "theirs")]
        rows.append([row["case"], *speeds, f"{row['times_faster']:.2f}"])
    return join(table(head, rows, texts=1), say(DECODING_NOTE).format(**result), result, say)


def recurrences_block(result: Result, say: Say) -> str:
    """Show forward + backward: ours beside torch.nn, and the share of what a large product reaches."""
    head = [say("layer"), say("dtype"), "B", "T", "H", say("ours, ms"), "torch.nn", say("faster"), say("of the peak")]
    rows = []
    for row in result["rows"]:
        if row["pass"] == BOTH:
            shape = [row["layer"], row["dtype"], *(str(row[name]) for name in ("batch", "steps", "hidden"))]
            times = [f"{row['ours_ms']:.1f}", f"{row['torch_ms']:.1f}", f"{row['faster']:.2f}"]
            rows.append([*shape, *times, f"{row['of_peak']:.0%}"])
    return join(table(head, rows, texts=2), say(RECURRENCES_NOTE).format(**result["setting"]), result, say)
