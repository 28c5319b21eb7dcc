"""The tables of docs/speed that need a GPU: recurrent kernels, training with them, and generation."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from recurrent_cases import WAYS
from tables import Result, Say, join, table

PASSES = ("forward", "forward + backward")
GRID_WAYS = ("ratio", "ratio_in_graphs")
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN"}
RECURRENT_NOTE = (
    "µs per time step, called once / four times in a row, where that was measured / in a CUDA graph; medians of at "
    "least "
    "{rounds} interleaved rounds (a third of them for calls in a row), {steps} steps, input size equal to hidden size. "
    "Errors are relative, against float64: ours / torch.nn's. "
)
GRID_NOTE = (
    "The second table: torch.nn's time over ours on the grid in bf16, as called / in a CUDA graph, at least {rounds} "
    "rounds of {steps} steps; in brackets where the plain path is selected, bold where ours is slower. Our kernels are "
    "selected at {chosen} of the points; ours is slower at {slower} of {count} as called, at {slower_in_graphs} in a "
    "CUDA graph."
)
DECODING_NOTE = "Greedy, bf16, medians of interleaved rounds, random weights. "
SAME_NOTE = (
    "In float32 GPT-2 generates the same token as without a cache in {same} of {clear} cases (of {all} tokens, those "
    "whose best logit leads by more than 1e-3). "
)
FLAT_NOTE = (
    "Second table: µs per token in float32 after that many tokens; changing the first token still changes the memory "
    "by "
    "at least {moved}. "
)
TRAINING_NOTE = (
    "In bf16 unless tf32 is named. Times include batches, dropout, clipping and the optimiser; variants are "
    "interleaved, "
    "{rounds} rounds of {updates} updates; the loss is the mean of the last {updates}."
)
LOSSES_NOTE = (
    "Mean over seeds, and each seed; the medium LSTM's schedule is shortened to 12 epochs. Variants are trained "
    "separately; the command is that of the last one. Speeds are in the table above."
)
BESIDE = {
    "static": "static cache, compiled",
    "transformers": "transformers' `generate`",
    "torch": "`nn.LSTM`, step by step",
}
LEADS = {  # printed before an optional table
    "recurrent": "Recurrent layers on a GPU by our persistent kernels:",
    "kernel_training": "Training with these kernels, and by the plain path:",
    "kernel_losses": "Held-out loss after complete trainings, nats:",
    "decoding_gpu": "Generation on a GPU:",
}
CHINESE = {
    LEADS["recurrent"]: "GPU 上的循环层（自研 persistent kernel）：",
    LEADS["kernel_training"]: "用这些 kernel 训练，与普通路径对比：",
    LEADS["kernel_losses"]: "完整训练后的验证损失（nats）：",
    LEADS["decoding_gpu"]: "GPU 上的生成速度：",
    RECURRENT_NOTE: "单位：微秒/时间步；单次调用 / 连续四次调用（如有测量）/ CUDA Graph 重放；"
    "至少交错 {rounds} 轮（连续调用为其三分之一）取中位数，{steps} 步，"
    "输入维度等于隐藏维度。误差为相对 float64 的相对误差：本项目 / torch.nn。",
    GRID_NOTE: "第二张表：bf16 下各尺寸的加速比（torch.nn 用时 / 本项目用时），直接调用 / CUDA Graph 重放，至少 "
    "{rounds} 轮，"
    "每轮 {steps} 步；括号表示选用普通路径，粗体表示本项目较慢。{chosen} 的尺寸选用自研 kernel；"
    "{count} 个尺寸中，直接调用时较慢的有 {slower} 个，CUDA Graph 下较慢的有 {slower_in_graphs} 个。",
    DECODING_NOTE: "贪心解码，bf16，交错多轮取中位数，随机权重。",
    SAME_NOTE: "float32 下，GPT-2 的 {clear} 个 token 中有 {same} 个与不用缓存时相同"
    "（共 {all} 个，只统计最大 logit 领先超过 1e-3 的）。",
    FLAT_NOTE: "第二张表：读入相应数量的 token 之后，float32 下每 token 的微秒数；改变第一个 token，记忆仍有不小于 "
    "{moved} 的变化。",
    TRAINING_NOTE: "未注明 tf32 的为 bf16。计时包含取批、dropout、梯度裁剪与优化器；各方案交错运行 {rounds} 轮，每轮 "
    "{updates} 次更新；"
    "损失为最后 {updates} 次更新的平均值。",
    LOSSES_NOTE: "各随机种子的平均值与单独结果；medium LSTM 的训练计划缩短为 12 个 epoch。各方案分别训练；"
    "所列命令为最后一次所用。"
    "速度见上表。",
    "each seed": "各随机种子",
    "commit": "提交",
    BESIDE["static"]: "静态缓存 + torch.compile",
    BESIDE["transformers"]: "transformers 的 `generate`",
    BESIDE["torch"]: "逐步调用 `nn.LSTM`",
    "pass": "计算",
    "ours, µs": "本项目，微秒",
    "torch.nn, µs": "torch.nn，微秒",
    "error of y": "y 的误差",
    "error of dW": "dW 的误差",
    "{} layers": "{} 层",
    "two directions": "双向",
    "grid": "尺寸",
    "ours, tokens/s": "本项目，token/秒",
    "µs per token": "微秒/token",
    "after {:,}": "{:,} 个之后",
    "last / first": "末 / 首",
    "training": "训练",
    "variant": "方案",
    "speed-up of the kernels": "kernel 加速比",
    "loss": "损失",
    "kernels": "自研 kernel，bf16",
    "kernels, tf32": "自研 kernel，tf32",
    "plain": "普通路径，bf16",
    "plain, captured": "普通路径，bf16，CUDA Graph",
    "plain, tf32, captured": "普通路径，tf32，CUDA Graph",
}


def recurrent_block(result: Result, say: Say) -> str:
    goals = [row for row in result["rows"] if row["goal"]]
    grid = [row for row in result["rows"] if row["dtype"] == "bfloat16" and row["layers"] == row["directions"] == 1]
    tables = goals_table(goals, say)
    note = say(RECURRENT_NOTE).format(**least(goals))
    if any(not row["goal"] for row in grid):
        tables = f"{tables}\n\n{grid_table(grid, say)}"
        note += say(GRID_NOTE).format(**least([row for row in grid if not row["goal"]]), **shares(grid))
    return join(tables, note, result, say)


def goals_table(rows: list[Result], say: Say) -> str:
    words = ("layer", "dtype", "pass", "B", "H", "ours, µs", "torch.nn, µs", "faster", "error of y", "error of dW")
    head = [word if len(word) == 1 else say(word) for word in words]
    return table(head, [goal_row(row, say) for row in rows], texts=3)


def goal_row(row: Result, say: Say) -> list[str]:
    us = row["us_per_step"]
    ways = [way for way in WAYS.values() if f"ours{way}" in us]
    times = [" / ".join(f"{us[f'{who}{way}']:.2f}" for way in ways) for who in ("ours", "torch.nn")]
    errors = [" / ".join(f"{error:.4f}" for error in row["errors"][what]) for what in ("y", "dw")]
    sizes = [str(row["batch"]), str(row["hidden"])]
    return [name_of(row, say), row["dtype"], say(row["pass"]), *sizes, *times, ratios(row, WAYS), *errors]


def name_of(row: Result, say: Say) -> str:
    layers = f", {say('{} layers').format(row['layers'])}" if row["layers"] > 1 else ""
    return CELLS[row["cell"]] + layers + (f", {say('two directions')}" if row["directions"] > 1 else "")


def ratios(row: Result, names: Iterable[str]) -> str:
    found = [row[name] for name in names if name in row]
    text = " / ".join(f"**{ratio:.2f}**" if ratio < 1 else f"{ratio:.2f}" for ratio in found)
    return text if row["chosen"] else f"({text})"


def grid_table(rows: list[Result], say: Say) -> str:
    """Return a row for each cell, pass and batch, a column for each width."""
    places = {(row["cell"], row["pass"], row["batch"], row["hidden"]): ratios(row, GRID_WAYS) for row in rows}
    widths, batches = (sorted({place[i] for place in places}) for i in (3, 2))
    lines = [
        [CELLS[cell], say(which), str(batch), *(places.get((cell, which, batch, width), "") for width in widths)]
        for cell in CELLS
        for which in PASSES
        for batch in batches
        if any((cell, which, batch, width) in places for width in widths)
    ]
    return table([say("grid"), say("pass"), "B", *(f"H {width}" for width in widths)], lines, texts=2)


def least(rows: list[Result]) -> dict[str, int]:
    return {name: min(row[name] for row in rows) for name in ("rounds", "steps")}


def shares(rows: list[Result]) -> dict[str, str]:
    counts = {name: str(sum(row[name] for row in rows)) for name in ("slower", "slower_in_graphs")}
    return counts | {"count": str(len(rows)), "chosen": f"{sum(row['chosen'] for row in rows) / len(rows):.0%}"}


def decoding_block(result: Result, say: Say) -> str:
    rows, tables = result["rows"], []
    compared = [row for row in rows if "ours_tokens_per_s" in row]
    flat = [row for row in rows if "us_per_token" in row]
    note = ""
    if compared:
        tables.append(compared_table(compared, say))
        note += say(DECODING_NOTE)
    for row in rows:
        if "clear" in row:
            note += say(SAME_NOTE).format(same=row["same"], clear=row["clear"], all=row["tokens"])
    if flat:
        tables.append(flat_table(flat, say))
        note += say(FLAT_NOTE).format(moved=f"{min(row['first_moved'] for row in flat):.1g}")
    return join("\n\n".join(tables), note.strip(), result, say)


def compared_table(rows: list[Result], say: Say) -> str:
    head = [say(word) for word in ("model", "beside", "batch", "ours, tokens/s", "theirs", "faster")]
    lines = []
    for row in rows:
        peer = next(name for name in BESIDE if f"times_{name}" in row)
        batch = row["setting"].removeprefix("batch ").partition(",")[0]
        speeds = [f"{row[f'{who}_tokens_per_s']:,.0f}" for who in ("ours", peer)]
        lines.append([row["part"], say(BESIDE[peer]), batch, *speeds, f"{row[f'times_{peer}']:.2f}"])
    return table(head, lines, texts=2)


def flat_table(rows: list[Result], say: Say) -> str:
    found = [(*row["setting"].split(", after "), row["us_per_token"]) for row in rows]
    times = {(family, int(context)): us for family, context, us in found}
    contexts = sorted({context for _, context in times})
    head = [say("µs per token"), *(say("after {:,}").format(context) for context in contexts), say("last / first")]
    lines = []
    for family, group in groupby(sorted(times), key=lambda place: place[0]):
        own = [times[place] for place in group]
        cells = [f"{times[family, c]:.1f}" if (family, c) in times else "" for c in contexts]
        lines.append([family, *cells, f"{own[-1] / own[0]:.2f}"])
    return table(head, lines, texts=1)


def training_block(result: Result, say: Say) -> str:
    head = [say(word) for word in ("training", "variant", "tokens/s", "speed-up of the kernels", "loss")]
    lines = []
    for row in result["rows"]:
        for way, speed in row["tokens_per_second"].items():
            faster = f"{row['ratio'][way]:.2f}" if way in row["ratio"] else ""
            lines.append([row["setting"], say(way), f"{speed:,.0f}", faster, f"{row['last_loss'][way]:.3f}"])
    return join(table(head, lines, texts=2), say(TRAINING_NOTE).format(**result), result, say)


def losses_block(result: Result, say: Say) -> str:
    head = [say(word) for word in ("training", "variant", "commit", "loss", "each seed")]
    lines = []
    for (setting, way), group in groupby(result["rows"], key=itemgetter("setting", "way")):
        rows = list(group)
        losses = [row["loss"] for row in rows]
        commits = ", ".join(sorted({row["commit"] for row in rows}))
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        lines.append([setting, say(way), commits, f"{statistics.mean(losses):.3f}", each])
    return join(table(head, lines, texts=3), say(LOSSES_NOTE), result, say)
