"""The model card: a run's README.md, generated from its files."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.machine import describe
from recollect.core.serialize import write_file
from recollect.core.task import About
from recollect.core.types import JsonObject
from recollect.data.names import in_short
from recollect.models.line import Station, station_of
from recollect.models.parameters import count_apart
from recollect.runs.config import UNITS, RunConfig
from recollect.runs.log import figure_of
from recollect.runs.progress import printable, time_in_words
from recollect.runs.run import Run

GROWTH = {"none": "无", "constant": "恒定", "saturates": "趋于饱和", "linear": "线性增长"}
SETTINGS = ("batch_size", "steps", "optimiser", "rate", "schedule", "dropout", "precision", "seed")
BARS = "▁▂▃▄▅▆▇█"


def write_card(run: Run, model: Any, about: About, device: torch.device, best_step: int) -> None:
    """Write README.md, in English and in Chinese."""
    facts = gather(run, model, about, device, best_step)
    config = facts["config"]
    heading = f"# {config.family}, {config.size}, {code(in_short(config.data))}"
    text = "\n".join([heading, "", *_english(facts), *_chinese(facts)])
    write_file(run.folder / "README.md", text.encode())


def gather(run: Run, model: Any, about: About, device: torch.device, best_step: int) -> JsonObject:
    """Return the contents of a card."""
    config = run.config()
    rows = run.metrics()
    figure = next(name for row in rows if (name := figure_of(row)) is not None)
    curve = [(row["step"], row[figure]) for row in rows if figure in row]
    best = next(point for point in curve if point[0] == best_step)
    last = next((row for row in reversed(rows) if "tokens" in row), {"step": 0, "tokens": 0, "seconds": 0.0})
    return {
        "run": run,
        "config": config,
        "training": asdict(config.training) | asdict(config.options) | dict(config.settings),
        "station": station_of(config.family, is_windowed=model.growth == "saturates"),
        "parameters": count_apart(model),
        "growth": model.growth,
        "about": about,
        "figure": figure.removeprefix("valid_"),
        "unknown": next((row["valid_unknown"] for row in rows if "valid_unknown" in row), 0.0),
        "curve": curve,
        "best": best,
        "last": last,
        "sample": next((s["prompt"] + s["text"] for s in run.samples() if s["step"] == best[0]), ""),
        "machine": describe(device),
    }


# ---- Markdown ----------------------------------------------------------------------------------------


def sparkline(values: list[float], width: int = 40) -> str:
    """Return values as a row of bars, at most `width` of them."""
    indices = np.unique(np.linspace(0, len(values) - 1, min(width, len(values))).round().astype(int))
    some: NDArray[np.float64] = np.asarray(values, dtype=np.float64)[indices]
    heights = (some - some.min()) / max(float(np.ptp(some)), 1e-12) * (len(BARS) - 1)
    return "".join(BARS[round(h)] for h in heights.tolist())


def fenced(text: str, language: str = "text") -> str:
    """Return text as a code block, with a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


def code(text: str) -> str:
    """Return text as a code span that is valid in a table."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return fence + space + printable(text, keep="").replace("|", "\\|") + space + fence


def _english(facts: JsonObject) -> list[str]:
    station: Station | None = facts["station"]
    about: About = facts["about"]
    step, loss = facts["best"]
    idea = "" if station is None else f" Its idea ({station.year}, {station.paper}): it {station.idea['en']}."
    bits = (
        f", {loss / math.log(2):.4f} bits per character"
        if about.symbols == "char" and facts["figure"] == "loss"
        else ""
    )
    unit = " nats per symbol" if facts["figure"] == "loss" else ""
    left_out = f" ({facts['unknown']:.2%} of the symbols are unknown and left out)" if facts["unknown"] else ""
    read, memory = next(iter(about.memory.items()))
    words = about.data or {"en": f"{about.symbols} symbols, vocabulary {about.vocabulary:,}"}
    rows = {
        "parameters": str(facts["parameters"]),
        "data": f"{code(in_short(facts['config'].data))}, {words['en']}",
        "parts": "train {:,}, validation {:,}, test {:,} {}".format(*about.parts, about.unit["en"]),
        **_parent(facts["config"], "begins from"),
        "budget": _budget(facts["training"]),
        "spent": "{step:,} updates, {tokens:,} symbols, {time} of training".format(**_spent(facts)),
        "settings": ", ".join(f"{name} {value}" for name, value in facts["training"].items() if name in SETTINGS),
        f"best validation {facts['figure']}": f"{loss:.4f}{unit}{bits}, at step {step:,}{left_out}",
        "memory": f"{memory:,} bytes after {read:,} symbols ({facts['growth']})",
        "machine": facts["machine"],
    }
    curve = facts["curve"]
    (first, begun), (last, ended) = curve[0], curve[-1]
    bars = f"step {first:,}: {begun:.4f}  {sparkline([loss for _, loss in curve])}  step {last:,}: {ended:.4f}"
    run: Run = facts["run"]
    commands = [
        run.command(about.use, run.prompt()),
        run.command("evaluate"),
        *([run.command("resume")] if facts["parameters"].total else []),
        f"{facts['config'].command()} --out ANOTHER",
    ]
    lines = [f"{about.noun['en']}, trained with recollect.{idea}", "", *_table(rows), "", "## Learning curve", ""]
    lines += [fenced(bars), "", "## A sample", "", fenced(facts["sample"]), "", "## Use it", ""]
    return [*lines, fenced("\n".join(commands), "sh"), ""]


def _chinese(facts: JsonObject) -> list[str]:
    station: Station | None = facts["station"]
    about: About = facts["about"]
    step, loss = facts["best"]
    idea = "" if station is None else f"核心思想（{station.year}，{station.paper}）：{station.idea['zh']}。"
    bits = f"，每字符 {loss / math.log(2):.4f} 比特" if about.symbols == "char" and facts["figure"] == "loss" else ""
    name = f"最佳验证 {facts['figure']}"
    value = f"{loss:.4f}"
    left_out = f"，其中 {facts['unknown']:.2%} 的符号不在词表内，不计入损失" if facts["unknown"] else ""
    if facts["figure"] == "loss":
        name = "最低验证损失"
        value = f"每符号 {loss:.4f} nats"
    read, memory = next(iter(about.memory.items()))
    words = about.data or {"zh": f"按 {about.symbols} 切分，词表大小 {about.vocabulary:,}"}
    rows = {
        "参数量": f"主体 {facts['parameters'].body:,}，词嵌入与输出层 {facts['parameters'].vocabulary:,}",
        "数据": f"{code(in_short(facts['config'].data))}，{words['zh']}",
        "划分": "训练 {:,}、验证 {:,}、测试 {:,} {}".format(*about.parts, about.unit["zh"]),
        **_parent(facts["config"], "父模型"),
        "预算": _budget(facts["training"]),
        "实际用量": "{step:,} 次更新，{tokens:,} 个符号，训练用时 {time}".format(**_spent(facts)),
        name: f"{value}{bits}（第 {step:,} 步{left_out}）",
        "记忆": f"读取 {read:,} 个符号后占 {memory:,} 字节（{GROWTH[facts['growth']]}）",
    }
    use = "学习曲线、样例、运行环境和命令见上文。"
    return ["## 中文", "", f"用 recollect 训练的{about.noun['zh']}。{idea}", "", *_table(rows), "", use, ""]


def _table(rows: dict[str, str]) -> list[str]:
    return ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]


def _parent(config: RunConfig, title: str) -> dict[str, str]:
    """Return the row of the trained model that this one began from, none where it did not."""
    known = config.transfer
    return {} if known is None else {title: f"{code(known.parent)}, SHA-256 {known.digest[:16]}"}


def _budget(training: JsonObject) -> str:
    limits = [f"{training[name]:,} {unit}" for name, unit in UNITS.items() if training[name] is not None]
    return ", ".join(limits) or "60 s"


def _spent(facts: JsonObject) -> JsonObject:
    return facts["last"] | {"time": time_in_words(facts["last"]["seconds"])}
