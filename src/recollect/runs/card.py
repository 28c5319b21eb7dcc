"""The model card: a run's README.md, filled in from what the run wrote down."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.machine import describe
from recollect.core.serialize import write_file
from recollect.models.line import LINE
from recollect.runs.config import Recipe
from recollect.runs.progress import printable, time_in_words
from recollect.runs.run import Run
from recollect.tasks.task import About

STATIONS = {"transformer": "self-attention"}  # families whose station of the line has another name
GROWTH = {"none": "没有", "constant": "恒定", "saturates": "趋于饱和", "linear": "线性增长"}
SETTINGS = ("batch_size", "steps", "optimiser", "rate", "schedule", "dropout", "precision", "seed")
FLAGS = {"tokenizer": "--tokenizer", "task": "--task", "batch_size": "--batch", "steps": "--steps"}
FLAGS |= {"seed": "--seed", "device": "--device"}
UNITS = {"max_seconds": "s", "max_steps": "steps", "max_tokens": "tokens", "max_epochs": "epochs"}
BARS = "▁▂▃▄▅▆▇█"


def write_card(run: Run, model: Any, about: About, device: torch.device) -> None:
    """Write README.md, in English and in Chinese."""
    facts = gather(run, model, about, device)
    text = "\n".join([*_heading(facts), *_english(facts), *_chinese(facts)])
    write_file(run.folder / "README.md", text.encode())


def gather(run: Run, model: Any, about: About, device: torch.device) -> dict[str, Any]:
    """Collect what a card says."""
    rows, training, samples = run.metrics(), asdict(Recipe(**run.config()["training"])), run.samples()
    curve = [(row["step"], row["valid_loss"]) for row in rows if "valid_loss" in row]
    best = min(curve, key=lambda point: point[1])
    last = next((row for row in reversed(rows) if "tokens" in row), {"step": 0, "tokens": 0, "seconds": 0.0})
    return {
        "folder": shlex.quote(str(run.folder)),
        "prompt": shlex.quote(run.prompt()),
        "training": training,
        "station": station(model.config),
        "parameters": sum(p.numel() for p in model.parameters()),
        "growth": model.growth,
        "about": about,
        "curve": curve,
        "best": best,
        "last": last,
        "sample": next((s["prompt"] + s["text"] for s in samples if s["step"] == best[0]), ""),
        "machine": describe(device),
    }


def station(config: Any) -> Any:
    """Give the family's place in the line; None where it has none."""
    is_windowed = config.family == "transformer" and getattr(config, "window", None)
    name = "windowed-attention" if is_windowed else STATIONS.get(config.family, config.family)
    return next((s for s in LINE if s.name == name), None)


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


def typed(recipe: Recipe) -> str:
    """Give a recipe as it is typed: DATA, model, budget, and the options that differ from what they are anyway."""
    words = [recipe.data, "-m", recipe.family, "--size", recipe.size]
    limits = {name: vars(recipe)[name] for name in UNITS if vars(recipe)[name] is not None}
    first = next(iter(limits), None)
    words += [] if first is None else ["--budget", f"{limits[first]}".removesuffix(".0") + UNITS[first]]
    for field in fields(recipe):
        value = vars(recipe)[field.name]
        if field.name not in ("data", "family", "size", first) and value != field.default:
            words += [FLAGS[field.name], f"{value}"] if field.name in FLAGS else ["--set", _setting(field.name, value)]
    return shlex.join(words)


def _setting(name: str, value: Any) -> str:
    return f"{name}={value if isinstance(value, str) else json.dumps(value)}"


def _heading(facts: dict[str, Any]) -> list[str]:
    training = facts["training"]
    return [f"# {training['family']}, {training['size']}, {code(training['data'])}", ""]


def _english(facts: dict[str, Any]) -> list[str]:
    place, about, (step, loss) = facts["station"], facts["about"], facts["best"]
    idea = "" if place is None else f" Its idea ({place.year}, {place.paper}): it {place.idea['en']}."
    bits = f", {loss / math.log(2):.4f} bits per character" if about.symbols == "char" else ""
    rows = {
        "parameters": f"{facts['parameters']:,}",
        "data": f"{code(facts['training']['data'])}, {about.symbols} symbols, vocabulary {about.vocabulary:,}",
        "parts": "train {:,}, validation {:,}, test {:,} {}".format(*about.parts, about.unit["en"]),
        "budget": _budget(facts["training"]),
        "spent": "{step:,} updates, {tokens:,} symbols, {time} of learning".format(**_spent(facts)),
        "settings": ", ".join(f"{name} {facts['training'][name]}" for name in SETTINGS),
        "best validation loss": f"{loss:.4f} nats per symbol{bits}, at step {step:,}",
        "memory": f"{about.memory:,} bytes after {about.read:,} symbols ({facts['growth']})",
        "machine": facts["machine"],
    }
    lines = [f"{about.noun['en']}, trained with recollect.{idea}", "", *_table(rows), "", "## Learning curve", ""]
    lines += [fenced(_curve(facts["curve"])), "", "## A sample", "", fenced(facts["sample"]), "", "## Use it", ""]
    return [*lines, fenced(_commands(facts), "sh"), ""]


def _chinese(facts: dict[str, Any]) -> list[str]:
    place, about, (step, loss) = facts["station"], facts["about"], facts["best"]
    idea = "" if place is None else f"其思想（{place.year}，{place.paper}）：{place.idea['zh']}。"
    bits = f"，每字符 {loss / math.log(2):.4f} 比特" if about.symbols == "char" else ""
    rows = {
        "参数": f"{facts['parameters']:,}",
        "数据": f"{code(facts['training']['data'])}，按 {about.symbols} 切分，词表 {about.vocabulary:,}",
        "划分": "训练 {:,}、验证 {:,}、测试 {:,} {}".format(*about.parts, about.unit["zh"]),
        "预算": _budget(facts["training"]),
        "已用": "{step:,} 次更新，{tokens:,} 个符号，学习 {time}".format(**_spent(facts)),
        "最低验证损失": f"每符号 {loss:.4f} 奈特{bits}，第 {step:,} 步",
        "记忆": f"读过 {about.read:,} 个符号后 {about.memory:,} 字节（{GROWTH[facts['growth']]}）",
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
    lines = [
        f"recollect {facts['about'].use} {facts['folder']} {facts['prompt']}",
        f"recollect evaluate {facts['folder']}",
    ]
    lines += [] if facts["training"]["family"] == "markov" else [f"recollect resume {facts['folder']}"]
    again = f"recollect train {typed(Recipe(**facts['training']))} --out ANOTHER"
    return "\n".join([*lines, again])
