"""`models` and `demo`: the line of models."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer
from rich.console import Console

from recollect.cli.app import AsJson, app, console, notice, refuse
from recollect.cli.line_table import line_table, station_table
from recollect.core.errors import nearest
from recollect.models.line import LINE


@app.command()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="One model, with all that is known of it.")
    ] = None,
    lang: Annotated[str, typer.Option(help="The language of the ideas: en or zh.")] = "en",
    as_json: AsJson = False,
) -> None:
    """List the models: year, idea, memory, cost. 列出所有模型：年份、核心思想、记忆与代价。"""
    if lang not in ("en", "zh"):
        refuse(f"--lang: got {lang!r}, expected en or zh", "recollect models --lang zh")
    shown = [station for station in LINE if name in (None, station.name)]
    if not shown:
        hint = nearest(str(name), [station.name for station in LINE])
        refuse(f"MODEL: got {name!r}, which is no model{hint.rstrip('?')}", "recollect models")
    if as_json:
        names = ("name", "year", "layer", "paper", "memory", "growth", "step", "idea", "tasks")
        stations = [{name: getattr(station, name) for name in names} for station in shown]
        typer.echo(json.dumps(stations, ensure_ascii=False, indent=2))
        return
    console.print(line_table(lang) if name is None else station_table(shown[0], lang))


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="Training seconds for each family.")] = 15.0,
    out: Annotated[str, typer.Option(help="The folder for the page and the runs.")] = "demo",
    as_json: AsJson = False,
) -> None:
    """Train all models on the same text for the same time, and compare. 用同一文本、相同时长训练所有模型并对比。"""
    from dataclasses import asdict
    from pathlib import Path

    from recollect.cli.demo import Demo, run_demo
    from recollect.cli.demo_table import LiveTable, final_tables, next_steps

    try:
        with LiveTable(Console(quiet=True) if as_json else console, seconds) as watcher:
            outcome = run_demo(Demo(Path(out), seconds), watcher)
    except KeyboardInterrupt:
        notice(f"stopped. Start again with: recollect demo --out {shlex.quote(out)}")
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(asdict(outcome), default=str, ensure_ascii=False))
    else:
        console.print(final_tables(outcome))
        typer.echo(f"\n{next_steps(outcome)}")
