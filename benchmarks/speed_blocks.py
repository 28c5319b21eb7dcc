"""The tables of docs/speed: how cost grows, and the benchmarks that not every machine has run."""

from __future__ import annotations

from tables import Result, Say, join, table

AXES = ("T", "H", "B", "layers", "context")
BOTH, FORWARD, GENERATION = "forward + backward", "forward", "generation"
GROWTH_NOTE = (
    "The exponent b of time ∝ size^b: least squares on the logarithms of the medians over the upper half of the sizes; "
    "± half the interquartile range of the exponents of the {rounds} rounds; in brackets the theoretical exponent in "
    "the "
    "limit, and after a semicolon that for these sizes. Base: T {T}, H {H}, B {B}, one layer; sizes up to "
    "{most}. {dtype}, heads of {head_width}, {threads} threads. "
    "The interquartile range of the times at a fitted size is at most {spread:.0%} of their median in half of the "
    "cells, "
    "and {widest:.0%} at most."
)
DECODING_NOTE = "Batch 1, tokens/s, medians of interleaved rounds, {threads} threads."
RECURRENCES_NOTE = (
    "Forward + backward, medians of interleaved rounds, {threads} threads; the peak is that of one large matmul in the "
    "same dtype and run."
)
THREADS_NOTE = (
    "Each command in a process of its own, medians of {rounds} interleaved rounds. train: the default size, {train} of "
    "updates, µs a token; evaluate: {characters:,} characters, generate: {tokens} tokens, seconds of the whole "
    "command, start included. Ratio: the default over the better of the two; beside a busy program the goal is {goal} "
    "at most."
)
LEADS = {  # printed before an optional table
    "growth_cuda": "On a GPU:",
    "decoding": "Generation at batch 1, beside a torch loop and transformers' `generate`:",
    "threads": "On two cores, alone and beside a program that keeps one of them busy:",
    "recurrences": "Recurrent layers on a CPU at other sizes, forward + backward:",
}
CHINESE = {
    LEADS["growth_cuda"]: "GPU 上：",
    LEADS["decoding"]: "批大小为 1 的生成速度，与 torch 逐步循环和 transformers 的 `generate` 对比：",
    LEADS["threads"]: "双核，单独运行以及有程序占满其中一个核时：",
    LEADS["recurrences"]: "CPU 上循环层的其他尺寸，前向 + 反向：",
    RECURRENCES_NOTE: "前向 + 反向，交错多轮取中位数，{threads} 线程；"
    "峰值为同一次运行、同一数据类型下一次大矩阵乘的速率。",
    "model, decoding": "模型与解码方式",
    "dtype": "数据类型",
    "ours, ms": "本项目，毫秒",
    "of the peak": "占峰值比例",
    BOTH: "前向 + 反向",
    FORWARD: "前向",
    "context": "上下文（每 token）",
    "greedy": "贪心",
    "sampled": "采样",
    "how": "方式",
    "theirs": "对照",
    GROWTH_NOTE: "用时 ∝ 规模^b 的指数 b：取规模较大的一半，对中位数的对数做最小二乘拟合；"
    "± 为 {rounds} 轮各自拟合指数的四分位距的一半；括号内为渐近理论值，分号后为这些规模下的理论值。"
    "基准：T {T}，H {H}，B {B}，一层；最大规模 {most}。{dtype}，每头宽 {head_width}，{threads} 线程。"
    "半数单元格中，拟合所用各规模用时的四分位距不超过中位数的 {spread:.0%}，最大为 {widest:.0%}。",
    THREADS_NOTE: "每条命令在单独的进程中运行，交错 {rounds} 轮取中位数。train：默认规模，{train} 更新，微秒/token；"
    "evaluate：{characters:,} 个字符，generate：{tokens} 个 token，整条命令的秒数，含启动。"
    "比值：默认设置用时 / 两者中较快者的用时；有程序占用一个核时，目标是不超过 {goal}。",
    "the other core": "另一个核",
    "model": "模型",
    "command": "命令",
    "busy": "被占用",
    "free": "空闲",
    "1 thread": "1 线程",
    "2 threads": "2 线程",
    "default": "默认",
    "ratio": "比值",
    DECODING_NOTE: "批大小 1，单位 token/秒，交错多轮取中位数，{threads} 线程。",
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
    """Return the exponents of one pass; those of generation stand beside forward + backward."""
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
    head = [say("model, decoding"), say("ours"), say("theirs"), say("faster")]
    rows = []
    for row in result["rows"]:
        speeds = [f"{row[who]['tokens_per_s']:,.0f}" for who in ("ours", "theirs")]
        rows.append([row["case"], *speeds, f"{row['times_faster']:.2f}"])
    return join(table(head, rows, texts=1), say(DECODING_NOTE).format(**result), result, say)


def recurrences_block(result: Result, say: Say) -> str:
    """Return forward + backward: ours beside torch.nn, and the share of the speed of a large matmul."""
    head = [say("layer"), say("dtype"), "B", "T", "H", say("ours, ms"), "torch.nn", say("faster"), say("of the peak")]
    rows = []
    for row in result["rows"]:
        if row["pass"] == BOTH:
            shape = [row["layer"], row["dtype"], *(str(row[name]) for name in ("batch", "steps", "hidden"))]
            times = [f"{row['ours_ms']:.1f}", f"{row['torch_ms']:.1f}", f"{row['faster']:.2f}"]
            rows.append([*shape, *times, f"{row['of_peak']:.0%}"])
    return join(table(head, rows, texts=2), say(RECURRENCES_NOTE).format(**result["setting"]), result, say)


def threads_block(result: Result, say: Say) -> str:
    """Return each command with the default number of threads, with one and with two."""
    head = ["the other core", "model", "command", "1 thread", "2 threads", "default", "ratio"]
    rows = []
    for row in result["rows"]:
        unit = 1000 if row["verb"] == "train" else 1  # a row holds ms a token
        times = [f"{row[who] * unit:.1f}" for who in ("one", "two", "default")]
        place = say("busy" if row["is_busy"] else "free")
        rows.append([place, row["family"], row["verb"], *times, f"{row['ratio']:.2f}"])
    note = say(THREADS_NOTE).format(**result["setting"])
    return join(table([say(word) for word in head], rows, texts=3), note, result, say)
