"""The model card: a run's README.md, filled in from what the run wrote down."""

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
from recollect.models.line import station_of
from recollect.runs.config import UNITS
from recollect.runs.log import figure_of
from recollect.runs.progress import printable, time_in_words
from recollect.runs.run import Run

GROWTH = {"none": "没有", "constant": "恒定", "saturates": "趋于饱和", "linear": "线性增长"}
SETTINGS = ("batch_size", "steps", "optimiser", "rate", "schedule", "dropout", "precision", "seed")
BARS = "▁▂▃▄▅▆▇█"


def write_card(run: Run, model: Any, about: About, device: torch.device, best_step: int) -> None:
    """Write README.md, in English and in Chinese."""
    facts = gather(run, model, about, device, best_step)
    text = "\n".join([*_heading(facts), *_english(facts), *_chinese(facts)])
    write_file(run.folder / "README.md", text.encode())


def gather(run: Run, model: Any, about: About, device: torch.device, best_step: int) -> dict[str, Any]:
    """Return what a card says."""
    config, rows = run.config(), run.metrics()
    figure = next(name for row in rows if (name := figure_of(row)) is not None)
    curve = [(row["step"], row[figure]) for row in rows if figure in row]
    best = next(point for point in curve if point[0] == best_step)
    last = next((row for row in reversed(rows) if "tokens" in row), {"step": 0, "tokens": 0, "seconds": 0.0})
    return {
        "run": run,
        "config": config,
        "training": asdict(config.training) | asdict(config.options) | dict(config.settings),
        "station": station_of(config.family, is_windowed=model.growth == "saturates"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "growth": model.growth,
        "about": about,
        "figure": figure.removeprefix("valid_"),
        "curve": curve,
        "best": best,
        "last": last,
        "sample": next((s["prompt"] + s["text"] for s in run.samples() if s["step"] == best[0]), ""),
        "machine": describe(device),
    }


# ---- words -------------------------------------------------------------------------------------------


def sparkline(values: list[float], width: int = 40) -> str:
    """Draw values as a row of bars, at most `width` of them."""
    places = np.unique(np.linspace(0, len(values) - 1, min(width, len(values))).round().astype(int))
    some: NDArray[Any] = np.asarray(values)[places]
    heights = (some - some.min()) / max(float(np.ptp(some)), 1e-12) * (len(BARS) - 1)
    return "".join(BARS[round(h)] for h in heights.tolist())


def fenced(text: str, language: str = "text") -> str:
    """Put text into a code block, whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{printable(text)}\n{fence}"


def code(text: str) -> str:
    """Put text into a code span that may stand in a table."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence, room = "`" * (longest + 1), " " if longest else ""
    return fence + room + printable(text, keep="").replace("|", "\\|") + room + fence


def _heading(facts: dict[str, Any]) -> list[str]:
    config = facts["config"]
    return [f"# {config.family}, {config.size}, {code(config.data)}", ""]


def _english(facts: dict[str, Any]) -> list[str]:
    place, about, (step, loss) = facts["station"], facts["about"], facts["best"]
    idea = "" if place is None else f" Its idea ({place.year}, {place.paper}): it {place.idea['en']}."
    bits = f", {loss / math.log(2):.4f} bits per character" if about.symbols == "char" else ""
    unit = " nats per symbol" if facts["figure"] == "loss" else ""
    read, memory = next(iter(about.memory.items()))
    rows = {
        "parameters": f"{facts['parameters']:,}",
        "data": f"{code(facts['config'].data)}, {about.symbols} symbols, vocabulary {about.vocabulary:,}",
        "parts": "train {:,}, validation {:,}, test {:,} {}".format(*about.parts, about.unit["en"]),
        "budget": _budget(facts["training"]),
        "spent": "{step:,} updates, {tokens:,} symbols, {time} of learning".format(**_spent(facts)),
        "settings": ", ".join(f"{name} {value}" for name, value in facts["training"].items() if name in SETTINGS),
        f"best validation {facts['figure']}": f"{loss:.4f}{unit}{bits}, at step {step:,}",
        "memory": f"{memory:,} bytes after {read:,} symbols ({facts['growth']})",
        "machine": facts["machine"],
    }
    lines = [f"{about.noun['en']}, trained with recollect.{idea}", "", *_table(rows), "", "## Learning curve", ""]
    lines += [fenced(_curve(facts["curve"])), "", "## A sample", "", fenced(facts["sample"]), "", "## Use it", ""]
    return [*lines, fenced(_commands(facts), "sh"), ""]


def _chinese(facts: dict[str, Any]) -> list[str]:
    place, about, (step, loss) = facts["station"], facts["about"], facts["best"]
    idea = "" if place is None else f"其思想（{place.year}，{place.paper}）：{place.idea['zh']}。"
    bits = f"，每字符 {loss / math.log(2):.4f} 比特" if about.symbols == "char" else ""
    name, unit, nats = f"最佳验证 {facts['figure']}", "", ""
    if facts["figure"] == "loss":
        name, unit, nats = "最低验证损失", "每符号 ", " 奈特"
    read, memory = next(iter(about.memory.items()))
    rows = {
        "参数": f"{facts['parameters']:,}",
        "数据": f"{code(facts['config'].data)}，按 {about.symbols} 切分，词表 {about.vocabulary:,}",
        "划分": "训练 {:,}、验证 {:,}、测试 {:,} {}".format(*about.parts, about.unit["zh"]),
        "预算": _budget(facts["training"]),
        "已用": "{step:,} 次更新，{tokens:,} 个符号，学习 {time}".format(**_spent(facts)),
        name: f"{unit}{loss:.4f}{nats}{bits}，第 {step:,} 步",
        "记忆": f"读过 {read:,} 个符号后 {memory:,} 字节（{GROWTH[facts['growth']]}）",
    }
    use = "学习曲线、样例、机器与命令见上文。"
    return ["## 中文", "", f"用 recollect 训练的{about.noun['zh']}。{idea}", "", *_table(rows), "", use, ""]


def _table(rows: dict[str, str]) -> list[str]:
    return ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in rows.items())]


def _budget(training: dict[str, Any]) -> str:
    limits = [f"{training[name]:,} {unit}" for name, unit in UNITS.items() if training[name] is not None]
    return ", ".join(limits) or "60 s"


def _spent(facts: dict[str, Any]) -> dict[str, Any]:
    return facts["last"] | {"time": time_in_words(facts["last"]["seconds"])}


def _curve(curve: list[tuple[int, float]]) -> str:
    (first, begun), (last, ended) = curve[0], curve[-1]
    return f"step {first:,}: {begun:.4f}  {sparkline([loss for _, loss in curve])}  step {last:,}: {ended:.4f}"


def _commands(facts: dict[str, Any]) -> str:
    run: Run = facts["run"]
    lines = [run.command(facts["about"].use, run.prompt()), run.command("evaluate")]
    lines += [run.command("resume")] if facts["parameters"] else []
    again = f"recollect train {facts['config'].typed()} --out ANOTHER"
    return "\n".join([*lines, again])
