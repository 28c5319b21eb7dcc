"""Write the figures of the READMEs, docs/figures, speed and scale from benchmarks/results: none is typed by hand.

The tables stand between the lines <!-- NAME:begin --> and <!-- NAME:end -->, NAME being one of BLOCKS, each in one page
of a language. One whose result is OPTIONAL says that it is not measured until there is one. `--check` changes nothing
and exits 1 where a page differs from the results.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from functools import reduce
from itertools import groupby
from operator import or_
from pathlib import Path

import comparison_blocks
import default_blocks
import gpu_blocks
import inspect_blocks
import label_blocks
import language_blocks
import line_blocks
import pair_blocks
import pretrained_blocks
import rating_blocks
import scale_blocks
import series_blocks
import serving_blocks
import speed_blocks
import summary_blocks
import tables
import transfer_blocks
from tables import Result, Say, at_most, join, table

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("README", "docs/figures", "docs/speed", "docs/scale")
PAGES = tuple(f"{page}{end}.md" for page in NAMES for end in ("", ".zh-CN"))
OPTIONAL = (
    "serving",
    "multi30k",
    "decoding",
    "decoding-gpu",
    "recurrences",
    "recurrent",
    "kernel-training",
    "kernel-losses",
    "growth-cuda",
    "threads",
    "series-sine",
    "series-ett",
    "series-bypass",
    "transfer",
    "series-units",
    "series-classics",
    "series-parity",
    "series-streaming",
    "transfer-minilm",
    "page-speed",
    *(file for file, _ in comparison_blocks.BLOCKS.values()),
    "scale-check",
)  # not every machine can measure them

MEMORY_NOTE = "One sequence, {dtype}, width {width}, {heads} heads where there are heads."
SPEED_NOTE = (
    "Ours / theirs, batch {batch}, {steps} steps, {dtype}, {threads} threads, medians of {rounds} interleaved rounds; "
    "interquartile range at most {spread} of the median ({again} of the pairs were timed again because it exceeded "
    "{limit}; the attempt with the smallest range counts). Outputs and gradients differ by at most {difference}."
)
MARKOV_NOTE = (
    "In all {count} comparisons the relative difference is at most {difference}. "
    "Order {order} of {tokens} tokens, {ngrams} n-grams, is counted in {seconds} s."
)
TRUNCATION_NOTE = (
    "Medians over seeds. Influence balancing starts at loss 8. At length 5 the carried memory alone retains a symbol "
    "for "
    "8 steps; without carrying, accuracy is at chance."
)
KINDS = ("regular", "random", "reweighted")
NOT_MEASURED = " not measured."
CHINESE = {
    NOT_MEASURED: "未测量。",
    "influence balancing: final loss": "影响平衡：最终损失",
    "copy: accuracy": "复制：准确率",
    "length": "截断长度",
    "lag": "滞后",
    "full": "不截断",
    "regular": "固定",
    "random": "随机",
    "reweighted": "随机 + 重加权",
    TRUNCATION_NOTE: "取各随机种子的中位数。影响平衡实验的初始损失为 8。截断长度为 5 时，"
    "跨段传递的记忆本身就能把符号保留 8 步；"
    "不传递记忆时，准确率等同随机猜测。",
    "family": "模型",
    "memory": "记忆",
    "growth": "增长",
    "bytes after 1 step": "1 步后的字节数",
    "{} steps": "{} 步",
    "none": "无",
    "constant": "恒定",
    "saturates": "随窗口饱和",
    "linear": "线性",
    "layer": "层",
    "beside": "对照",
    "forward, ms": "前向，毫秒",
    "forward + backward, ms": "前向 + 反向，毫秒",
    "ratio": "比值",
    "pack_padded_sequence, ragged": "pack_padded_sequence，一半的行只有一半长",
    "scaled_dot_product, no memory": "scaled_dot_product，不返回记忆",
    "text": "文本",
    "order": "阶数",
    "ours": "本项目",
    "relative difference": "相对误差",
    "counting, s": "计数，秒",
    "scoring, s": "打分，秒",
    "perplexity": "困惑度",
    "nats": "每字符 nats",
    MEMORY_NOTE: "单条序列，{dtype}，宽度 {width}；有注意力头的层取 {heads} 个头。",
    SPEED_NOTE: "本项目 / 对照，批大小 {batch}，{steps} 步，{dtype}，{threads} 线程，交错 {rounds} 轮取中位数；"
    "四分位距不超过中位数的 {spread}（其中 {again} 组因超过 {limit} 而重测，取离散度最小的一次）。"
    "输出与梯度的最大差异不超过 {difference}。",
    MARKOV_NOTE: "全部 {count} 项比较的相对误差不超过 {difference}。"
    "{tokens} 个 token 的 {order} 阶计数（{ngrams} 个 n 元组）用时 {seconds} 秒。",
}


def main() -> int:
    check = "--check" in sys.argv[1:]
    changed = 0
    for name in PAGES:
        path = ROOT / name
        if not is_current(path):
            changed += 1
            print(f"{name}: {'differs from the results; run python benchmarks/readme.py' if check else 'rewritten'}")
            if not check:
                path.write_text(fresh(path), encoding="utf-8")
    return 1 if check and changed else 0


def is_current(path: Path) -> bool:
    return path.read_text(encoding="utf-8") == fresh(path)


def fresh(path: Path) -> str:
    """Return a page as it should be."""
    say = chinese if path.name.endswith("zh-CN.md") else english
    text = path.read_text(encoding="utf-8")
    for name in blocks_in(text):
        text = fill(text, name, block_of(name, say), path.name)
    return text


def block_of(name: str, say: Say) -> str:
    file, block = BLOCKS[name]
    if file not in OPTIONAL:
        return block(load(file), say)
    optional = (speed_blocks, line_blocks, gpu_blocks, series_blocks, summary_blocks, transfer_blocks)
    parts = (*optional, inspect_blocks, comparison_blocks, scale_blocks, serving_blocks)
    leads = reduce(or_, (part.LEADS for part in parts))
    if not path_of(file).exists():
        return say(leads[name]) + say(NOT_MEASURED)
    return f"{say(leads[name])}\n\n{block(load(file), say)}"


def blocks_in(text: str) -> list[str]:
    return re.findall(r"^<!-- (\w+):begin -->$", text, re.MULTILINE)


def fill(text: str, name: str, block: str, where: str) -> str:
    """Put a block between its two markers."""
    marked = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise SystemExit(f"{where}: expected one <!-- {name}:begin --> and one <!-- {name}:end -->, each on a line")
    return marked.sub(lambda found: f"{found[1]}\n{block}\n\n{found[2]}", text)


def path_of(file: str) -> Path:
    return ROOT / "benchmarks" / "results" / f"{file}.json"


def load(file: str) -> Result:
    path = path_of(file)
    if not path.exists():
        raise SystemExit(f"benchmarks/results/{file}.json is missing: run python benchmarks/{file}.py")
    return json.loads(path.read_text(encoding="utf-8"))


def english(words: str) -> str:
    return words


def chinese(words: str) -> str:
    texts = (language_blocks, pair_blocks, label_blocks, rating_blocks, line_blocks, default_blocks)
    parts = (
        tables,
        *texts,
        speed_blocks,
        gpu_blocks,
        series_blocks,
        summary_blocks,
        transfer_blocks,
        comparison_blocks,
        pretrained_blocks,
        inspect_blocks,
        scale_blocks,
        serving_blocks,
    )
    return reduce(or_, (part.CHINESE for part in parts), CHINESE)[words]


# ---- the blocks ------------------------------------------------------------------------------------


def memory_block(result: Result, say: Say) -> str:
    first, *later = result["steps"]
    assert first == 1
    head = [say("family"), say("memory"), say("growth"), say("bytes after 1 step")]
    head += [say("{} steps").format(f"{steps:,}") for steps in later]
    rows = [
        [row["family"], f"`{row['memory']}`", say(row["growth"]), *(f"{size:,}" for size in row["bytes"])]
        for row in result["rows"]
    ]
    return join(table(head, rows, texts=3), say(MEMORY_NOTE).format(**result["setting"]), result, say)


def speed_block(result: Result, say: Say) -> str:
    """Lay the two passes of a layer side by side; the rows with a goal come first."""
    head = [say("layer"), say("beside"), "H"]
    head += [say("forward, ms"), say("ratio"), say("forward + backward, ms"), say("ratio")]
    in_order = sorted(result["rows"], key=lambda row: not row["has_goal"])
    rows = []
    for (layer, against, hidden), passes in groupby(
        in_order, lambda row: (row["layer"], row["against"], row["hidden"])
    ):
        beside = f"`{against}`" if against.startswith("nn.") else say(against)
        cells = [
            cell for row in passes for cell in (f"{row['ours_ms']:.1f} / {row['torch_ms']:.1f}", f"{row['ratio']:.2f}")
        ]
        rows.append([layer, beside, str(hidden), *cells])
    spread = max(row["spread"] for row in result["rows"])
    difference = max(row["largest_difference"] for row in result["rows"])
    again = sum(row["attempts"] > 1 for row in result["rows"])
    figures = {"spread": f"{math.ceil(100 * spread)} %", "difference": at_most(difference), "again": again}
    limit = f"{100 * result['setting']['steady']:.0f} %"
    note = say(SPEED_NOTE).format(**result["setting"], **figures, limit=limit)
    return join(table(head, rows, texts=2), note, result, say)


def markov_block(result: Result, say: Say) -> str:
    head = [say("text"), say("order"), say("ours"), "KenLM", say("relative difference")]
    head += [say("counting, s"), say("scoring, s")]
    compared = [row for row in result["rows"] if "kenlm" in row]
    rows = [markov_row(row, say) for row in compared]
    large = next(row for row in result["rows"] if "tokens" in row)
    note = say(MARKOV_NOTE).format(
        count=len(compared),
        difference=at_most(max(abs(row["relative_difference"]) for row in compared)),
        order=large["order"],
        tokens=f"{large['tokens']:,}",
        ngrams=f"{large['ngrams']:,}",
        seconds=f"{large['count_s']:.1f}",
    )
    return join(table(head, rows, texts=1), note, result, say)


def markov_row(row: Result, say: Say) -> list[str]:
    found = re.fullmatch(r"(.+) (\d+)-gram, (\w+)", row["what"])
    assert found, row["what"]
    text, n, unit = found.groups()
    figures = [f"{row[who]:.4f}" for who in ("ours", "kenlm")]
    times = [f"{row[what]:.2f}" for what in ("count_s", "score_s")]
    return [f"{text}, {say(unit)}", str(int(n) - 1), *figures, f"{row['relative_difference']:.1e}", *times]


def truncation_block(result: Result, say: Say) -> str:
    both = f"{balancing_table(result['rows'], say)}\n\n{copy_table(result['rows'], say)}"
    return join(both, say(TRUNCATION_NOTE), result, say)


def balancing_table(found: list[Result], say: Say) -> str:
    losses = {(row["kind"], row["steps"]): row["median"] for row in found if "kind" in row}
    lengths = sorted({length for _, length in losses})
    head = [say("influence balancing: final loss"), *(f"{say('length')} {n}" for n in lengths)]
    cells = {key: f"{loss:.2g}" for key, loss in losses.items()}
    return table(head, [[say(kind), *(cells.get((kind, n), "") for n in lengths)] for kind in KINDS], texts=1)


def copy_table(found: list[Result], say: Say) -> str:
    rows = [row for row in found if row["experiment"] == "copy" and row["memory"] == "carried"]
    cells = {(row["steps"], row["lag"]): f"{row['median']:.2f}" for row in rows}
    lags = sorted({row["lag"] for row in rows})
    head = [say("copy: accuracy"), *(f"{say('lag')} {lag}" for lag in lags)]
    names = {n: say("full") if n == "full" else f"{say('length')} {n}" for n, _ in cells}
    return table(head, [[name, *(cells[n, lag] for lag in lags)] for n, name in names.items()], texts=1)


BLOCKS: dict[str, tuple[str, Callable[[Result, Say], str]]] = {
    "memory": ("memory", memory_block),
    "speed": ("layers", speed_block),
    "markov": ("markov", markov_block),
    "characters": ("characters", language_blocks.characters_block),
    "ptb": ("ptb", language_blocks.ptb_block),
    "truncation": ("truncation", truncation_block),
    "nanogpt": ("nanogpt", language_blocks.nanogpt_block),
    "translation": ("translation", pair_blocks.translation_block),
    "captions": ("captions", pair_blocks.captions_block),
    "pretrained": ("pretrained", pretrained_blocks.pretrained_block),
    "ratings": ("ratings", rating_blocks.ratings_block),
    "defaults": ("defaults", default_blocks.defaults_block),
    "line": ("multi30k", line_blocks.line_block),
    "story": ("multi30k", line_blocks.story_block),
    "growth": ("growth", speed_blocks.growth_block),
    "serving": ("serving", serving_blocks.serving_block),
    "growth_cuda": ("growth-cuda", speed_blocks.growth_block),
    "decoding": ("decoding", speed_blocks.decoding_block),
    "threads": ("threads", speed_blocks.threads_block),
    "recurrences": ("recurrences", speed_blocks.recurrences_block),
    "recurrent": ("recurrent", gpu_blocks.recurrent_block),
    "kernel_training": ("kernel-training", gpu_blocks.training_block),
    "kernel_losses": ("kernel-losses", gpu_blocks.losses_block),
    "decoding_gpu": ("decoding-gpu", gpu_blocks.decoding_block),
    "series_sine": ("series-sine", series_blocks.sine_block),
    "series_ett": ("series-ett", series_blocks.ett_block),
    "series_bypass": ("series-bypass", series_blocks.bypass_block),
    "series_units": ("series-units", series_blocks.units_block),
    "series_classics": ("series-classics", series_blocks.classics_block),
    "series_parity": ("series-parity", series_blocks.parity_block),
    "series_streaming": ("series-streaming", series_blocks.streaming_block),
    "best_characters": ("characters", summary_blocks.best_characters_block),
    "best_line": ("multi30k", summary_blocks.best_line_block),
    "best_speed": ("recurrent", summary_blocks.best_speed_block),
    **label_blocks.BLOCKS,
    **comparison_blocks.BLOCKS,
    **scale_blocks.BLOCKS,
    **transfer_blocks.BLOCKS,
    **inspect_blocks.BLOCKS,
}


if __name__ == "__main__":
    sys.exit(main())
