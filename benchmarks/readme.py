"""Write the figures of the READMEs, docs/figures and docs/speed from benchmarks/results: none is typed by hand.

The tables stand between the lines <!-- NAME:begin --> and <!-- NAME:end -->, NAME being one of BLOCKS, each in one page
of a language. One whose result is OPTIONAL is empty until there is one. `--check` changes nothing and exits 1 where a
page does not say what the results say.
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

import gpu_blocks
import line_blocks
import pair_blocks
import speed_blocks
import tables
from tables import Result, Say, at_most, join, table

ROOT = Path(__file__).resolve().parent.parent
PAGES = tuple(f"{page}{end}.md" for page in ("README", "docs/figures", "docs/speed") for end in ("", ".zh-CN"))
OPTIONAL = (
    "multi30k",
    "decoding",
    "decoding-gpu",
    "recurrences",
    "recurrent",
    "kernel-training",
    "growth-cuda",
)  # not every machine can show them

MEMORY_NOTE = "One sequence, {dtype}, width {width}, {heads} heads where there are heads."
SPEED_NOTE = (
    "Ours / theirs, batch {batch}, {steps} steps, {dtype}, {threads} threads, medians of {rounds} interleaved rounds; "
    "the interquartile range is at most {spread} of a median (timed again because it was wider than {limit}: "
    "{again} of the pairs; the narrowest attempt counts). Outputs and gradients differ by at most {difference}."
)
MARKOV_NOTE = (
    "In all {count} comparisons the relative difference is at most {difference}. "
    "Order {order} of {tokens} tokens, {ngrams} n-grams, is counted in {seconds} s."
)
CHARACTERS_NOTE = (
    "tinyshakespeare, the last tenth held out and read whole. nanoGPT's setting: median of three seeds {median:.4f}; "
    "nanoGPT publishes 1.4697, a sampled estimate of one run. The checkpoint is chosen on the same text, as there."
)
NANOGPT_NOTE = (
    "4 layers, width 128, context 64, batch 12, 2000 updates; nanoGPT's README gives 1.88, sampled. Ours / theirs in "
    "speed, 50 updates in turn: median {ratio}, quartiles {low} and {high}."
)
PTB_NOTE = (
    "Perplexity, read whole with memory carried; the epoch is chosen on validation. Biases: of each gate; the paper's "
    "equations have one, its authors' code two. Products are made in tf32, or in bf16 by our own kernels."
)
TRUNCATION_NOTE = (
    "Medians over seeds. Influence balancing starts at loss 8. At length 5 the carried memory alone holds a symbol for "
    "8 steps: not carried, accuracy is at chance."
)
KINDS = ("regular", "random", "reweighted")
CHINESE = {
    "model": "模型",
    "read": "读法",
    "parameters": "参数",
    "tokens read": "读过的词元",
    "nanoGPT's estimate": "nanoGPT 式估计",
    "6-gram": "6 元模型",
    "5-gram": "5 元模型",
    "carried": "记忆延续",
    "cold windows": "各窗口从头",
    "carried, in 32 parts": "续读，分 32 段",
    "layers": "层数",
    "dropout": "dropout",
    "rate": "学习率",
    "decay": "衰减",
    "seed": "种子",
    "transformer, as nanoGPT": "transformer，同 nanoGPT",
    "validation": "验证",
    "test": "测试",
    "published": "已发表",
    "small": "小",
    "medium": "中",
    "influence balancing: loss in the end": "影响平衡：最终损失",
    "copy: accuracy": "复制：准确率",
    "length": "长度",
    "lag": "间隔",
    "full": "不截断",
    "regular": "定长",
    "random": "随机",
    "reweighted": "无偏加权",
    CHARACTERS_NOTE: "tinyshakespeare，留出最后十分之一，整段读完。nanoGPT 的设置：三个种子的中位数 {median:.4f}；"
    "nanoGPT 公布 1.4697，为单次训练的抽样估计。与其一样，检查点也在同一段文字上挑选。",
    "tokens/s": "词元/秒",
    NANOGPT_NOTE: "4 层，宽度 128，上下文 64，批量 12，2000 次更新；nanoGPT 的 README 给出 1.88（抽样）。"
    "速度之比（我们 / 对方），每 50 次更新轮换：中位数 {ratio}，四分位数 {low} 与 {high}。",
    "products": "乘积",
    "biases": "偏置",
    "diverged": "发散",
    PTB_NOTE: "困惑度，整段读完、记忆延续；轮次在验证集上挑选。偏置：每个门的个数；论文的公式为一个，作者的代码为两个。"
    "乘积用 tf32 计算，或由我们自己的内核用 bf16 计算。",
    TRUNCATION_NOTE: "各种子取中位数。影响平衡的起始损失为 8。长度 5 时，延续的记忆本身就能把符号保留 8 步："
    "若不延续，准确率等于随机猜测。",
    "family": "模型",
    "memory": "记忆",
    "growth": "增长",
    "bytes after 1 step": "1 步后的字节数",
    "{} steps": "{} 步",
    "none": "无",
    "constant": "不变",
    "saturates": "到窗口为止",
    "linear": "线性",
    "layer": "层",
    "beside": "对照",
    "forward, ms": "前向，毫秒",
    "forward + backward, ms": "前向 + 反向，毫秒",
    "ratio": "比值",
    "pack_padded_sequence, ragged": "pack_padded_sequence，一半的行只有一半长",
    "scaled_dot_product, no memory": "scaled_dot_product，不留记忆",
    "text": "文本",
    "order": "阶数",
    "ours": "我们",
    "relative difference": "相对差",
    "counting, s": "计数，秒",
    "scoring, s": "打分，秒",
    "perplexity": "困惑度",
    "nats": "每字符 nats",
    MEMORY_NOTE: "一条序列，{dtype}，宽度 {width}，有注意力头的用 {heads} 个头。",
    SPEED_NOTE: "我们 / 对方，批量 {batch}，{steps} 步，{dtype}，{threads} 线程，交错 {rounds} 轮取中位数；"
    "四分位距不超过中位数的 {spread}（{again} 对起初宽于 {limit}，已重新计时，取最窄的一次）。"
    "输出与梯度相差不超过 {difference}。",
    MARKOV_NOTE: "全部 {count} 项比较的相对差不超过 {difference}。"
    "{tokens} 个词元的 {order} 阶计数（{ngrams} 个 n 元组）用时 {seconds} 秒。",
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
    """Give a page as it should be."""
    say = chinese if path.name.endswith("zh-CN.md") else english
    text = path.read_text(encoding="utf-8")
    for name in blocks_in(text):
        text = fill(text, name, block_of(name, say), path.name)
    return text


def block_of(name: str, say: Say) -> str:
    file, block = BLOCKS[name]
    if file not in OPTIONAL:
        return block(load(file), say)
    leads = speed_blocks.LEADS | line_blocks.LEADS | gpu_blocks.LEADS
    return f"{say(leads[name])}\n\n{block(load(file), say)}" if path_of(file).exists() else ""


def blocks_in(text: str) -> list[str]:
    return re.findall(r"^<!-- (\w+):begin -->$", text, re.MULTILINE)


def fill(text: str, name: str, block: str, where: str) -> str:
    """Put a block between its two markers."""
    marked = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise SystemExit(f"{where}: wanted one <!-- {name}:begin --> and one <!-- {name}:end --> on lines of their own")
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
    parts = (tables, pair_blocks, line_blocks, speed_blocks, gpu_blocks)
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


def characters_block(result: Result, say: Say) -> str:
    words = ("model", "read", "products", "parameters", "tokens read", "nats", "nanoGPT's estimate")
    rows = [characters_row(row, say) for row in sorted(result["rows"], key=lambda row: row["whole_set_loss"])]
    rows.append([say("6-gram"), say("carried"), "", "", "", f"{result['six_gram']:.4f}", ""])
    return join(
        table([say(word) for word in words], rows, texts=3),
        say(CHARACTERS_NOTE).format(median=result["median"]),
        result,
        say,
    )


def characters_row(row: Result, say: Say) -> list[str]:
    how = row["setting"]
    layers = f", {say('layers')} {how['depth']}" if how["depth"] else ""
    name = f"{how['family']}{layers}, {say('dropout')} {how['dropout']}, {say('rate')} {how['rate']}"
    if how["family"] == "transformer":
        name = f"{say('transformer, as nanoGPT')}, {say('seed')} {how['seed']}"
    tokens = row["step"] * how["batch"] * how["steps"] / 1e6
    sampled = "" if row["sampled_loss"] is None else f"{row['sampled_loss']:.4f}"
    read = say(row["read"] if row["read"].startswith("carried") else "cold windows")
    figures = [f"{row['parameters']:,}", f"{tokens:.1f} M", f"{row['whole_set_loss']:.4f}", sampled]
    return [name, read, products_of(how), *figures]


def products_of(how: Result) -> str:
    """Name what products are made in; the oldest rows do not say."""
    precision = how.get("precision", "fp32")
    return "tf32" if precision == "fp32" else precision


def ptb_block(result: Result, say: Say) -> str:
    head = ["model", "parameters", "products", "biases", "rate", "decay", "seed", "validation", "test", "published"]
    rows = [ptb_row(row, result["sizes"][row["size"]]["published"], say) for row in result["rows"]]
    rows.append([say("5-gram"), *[""] * (len(head) - 3), f"{result['five_gram']:.2f}", ""])
    return join(table([say(word) for word in head], rows, texts=1), say(PTB_NOTE), result, say)


def ptb_row(row: Result, published: float, say: Say) -> list[str]:
    how = [f"{row['parameters']:,}", products_of(row), str(row.get("biases", 2))]
    how += [f"{row['rate']:g}", f"{row['decay']:.3g}", str(row["seed"])]
    figures = [row["valid_perplexity"], row["test_perplexity"]]
    written = [say("diverged") if figure is None else f"{figure:.2f}" for figure in figures]
    return [
        f"{row['family']}, {say(row['size'])}",
        *how,
        *written,
        f"{published:.1f}" if row["family"] == "lstm" else "",
    ]


def nanogpt_block(result: Result, say: Say) -> str:
    head = [say("model"), say("tokens/s"), say("nats"), say("nanoGPT's estimate")]
    rows = []
    for row in result["rows"]:
        speed = f"{row['tokens_per_second']:,.0f}" if "tokens_per_second" in row else ""
        whole = f"{row['whole_set_loss']:.4f}" if "whole_set_loss" in row else ""
        rows.append([row["name"], speed, whole, f"{row['sampled']:.4f}"])
    low, _, high = result["quartiles"]
    note = say(NANOGPT_NOTE).format(ratio=f"{result['ratio']:.3f}", low=f"{low:.3f}", high=f"{high:.3f}")
    return join(table(head, rows, texts=1), note, result, say)


def truncation_block(result: Result, say: Say) -> str:
    both = f"{balancing_table(result['rows'], say)}\n\n{copy_table(result['rows'], say)}"
    return join(both, say(TRUNCATION_NOTE), result, say)


def balancing_table(found: list[Result], say: Say) -> str:
    losses = {(row["kind"], row["steps"]): row["median"] for row in found if "kind" in row}
    lengths = sorted({length for _, length in losses})
    head = [say("influence balancing: loss in the end"), *(f"{say('length')} {n}" for n in lengths)]
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
    "characters": ("characters", characters_block),
    "ptb": ("ptb", ptb_block),
    "truncation": ("truncation", truncation_block),
    "nanogpt": ("nanogpt", nanogpt_block),
    "translation": ("translation", pair_blocks.translation_block),
    "captions": ("captions", pair_blocks.captions_block),
    "line": ("multi30k", line_blocks.line_block),
    "story": ("multi30k", line_blocks.story_block),
    "growth": ("growth", speed_blocks.growth_block),
    "growth_cuda": ("growth-cuda", speed_blocks.growth_block),
    "decoding": ("decoding", speed_blocks.decoding_block),
    "recurrences": ("recurrences", speed_blocks.recurrences_block),
    "recurrent": ("recurrent", gpu_blocks.recurrent_block),
    "kernel_training": ("kernel-training", gpu_blocks.training_block),
    "decoding_gpu": ("decoding-gpu", gpu_blocks.decoding_block),
}


if __name__ == "__main__":
    sys.exit(main())
