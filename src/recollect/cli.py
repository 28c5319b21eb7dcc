"""The command line: parse, call, print. torch is imported only by the verbs that need it."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from recollect.line import LINE
from recollect.version import __version__

app = typer.Typer(
    help="Every sequence model is a way of remembering. 每个序列模型都是一种记忆方式。",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"recollect {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def models(
    lang: Annotated[str, typer.Option(help="The language of the ideas: en or zh.")] = "en", as_json: AsJson = False
) -> None:
    """Show the line: year, idea, memory, cost. 展示整条发展线。"""
    if lang not in ("en", "zh"):
        _refuse(f"--lang: seen {lang!r}, wanted en or zh", "recollect models --lang zh")
    if as_json:
        typer.echo(json.dumps([_station(s) for s in LINE], ensure_ascii=False, indent=2))
        return
    table = Table(box=None, header_style="bold")
    for column in ("year", "model", "idea", "memory", "bytes grow", "a step costs"):
        table.add_column(column, overflow="fold", no_wrap=column in ("year", "model"))
    for s in LINE:
        table.add_row(str(s.year), s.name, s.idea[lang], s.memory, s.growth, s.step)
    console.print(table)


def _station(s: Any) -> dict[str, Any]:
    names = ("name", "year", "layer", "paper", "memory", "growth", "step", "idea")
    return {name: getattr(s, name) for name in names}


@app.command()
def demo(as_json: AsJson = False) -> None:
    """Hold every model of the line against the laws and measure its memory. 检验每个模型并测量其记忆。"""
    from recollect.demo import STEPS, run

    if as_json:
        typer.echo(json.dumps(list(run()), indent=2))
        return
    table = Table(title="Bytes remembered after so many steps (batch 1, width 64, float32)", box=None)
    for column in ("year", "model", "laws", "memory", *(f"{n} steps" for n in STEPS)):
        table.add_column(column, justify="right" if "steps" in column else "left")
    with console.status("reading …") as status:
        for row in run(lambda name: status.update(f"holding {name} against the laws …")):
            sizes = [f"{n:,}" for n in row["bytes"]]
            table.add_row(str(row["year"]), row["name"], f"{row['laws']} hold", row["memory"], *sizes)
    console.print(table)
    console.print("\nNext: [bold]recollect models[/bold] tells what each of them is.")


def _refuse(problem: str, next_command: str) -> None:
    typer.echo(f"recollect: {problem}. Try: {next_command}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Run the command line."""
    app(prog_name="recollect")
