"""The command line: parse, call, print. torch is imported only by the verbs that need it."""

from __future__ import annotations

import json
import re
import sys
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


Data = Annotated[str, typer.Argument(metavar="DATA", help="A file, folder, glob, - or a built-in such as python-docs.")]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")]


@app.command()
def train(
    data: Data,
    model: Annotated[str, typer.Option("-m", "--model", help="The family; see recollect models.")] = "lstm",
    size: Annotated[str, typer.Option(help="tiny, small or base: equal parameters for every family.")] = "tiny",
    budget: Annotated[str, typer.Option(help="30s, 5m, 2000steps or 1000000tokens.")] = "60s",
    out: Annotated[str | None, typer.Option(help="The run's folder; by default runs/MODEL.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes weights and order.")] = 0,
    tokenizer: Annotated[str | None, typer.Option(help="char, byte, word or bpe; by default chosen.")] = None,
    field: Annotated[str | None, typer.Option(help="The field of .jsonl, .csv and .tsv files.")] = None,
    batch: Annotated[int, typer.Option(help="Rows read side by side.")] = 16,
    steps: Annotated[int, typer.Option(help="Symbols to a stretch.")] = 128,
    rate: Annotated[float, typer.Option(help="The highest learning rate.")] = 3e-3,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="All else.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a language model on DATA. 训练一个语言模型。"""
    from recollect.run import Run
    from recollect.training import Recipe, begin

    recipe = Recipe(
        data, model, size, tokenizer, field, **_budget(budget), batch_size=batch, steps=steps, rate=rate, seed=seed
    )
    recipe = recipe.with_settings(settings or [])
    run = Run(out or f"runs/{model}")
    _close(begin(recipe, run, _Reporter(as_json)), run.folder)


@app.command()
def resume(run: RunFolder, as_json: AsJson = False) -> None:
    """Go on with a run where it stopped. 从停下的地方继续训练。"""
    from recollect import training
    from recollect.run import Run

    folder = Run(run)
    _close(training.resume(folder, _Reporter(as_json), _notice), folder.folder)


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="By default the run's own test part.")] = None,
    steps: Annotated[int | None, typer.Option(help="Symbols to a cold window.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how well a run predicts a text. 衡量模型对文本的预测。"""
    from recollect.measuring import measure
    from recollect.run import Run

    result = measure(Run(run), data, steps)
    if as_json:
        typer.echo(json.dumps(result))
        return
    table = Table(box=None, header_style="bold")
    for column in ("read", "nats", "perplexity", "bits per character", "bits per byte"):
        table.add_column(column)
    for row in result["rows"]:
        table.add_row(row["read"], *(f"{row[name]:.4f}" for name in ("nats", "perplexity", "bpc", "bpb")))
    console.print(table)


@app.command()
def generate(
    run: RunFolder,
    prompt: Annotated[str, typer.Argument(help="What to go on from.")],
    tokens: Annotated[int, typer.Option(help="Symbols to add.")] = 200,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always the likeliest.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1 surer, above 1 wilder.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Among the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Among the likeliest that make up p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Among those p times as likely as the likeliest.")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text.")] = None,
    seed: Annotated[int, typer.Option(help="Fixes the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Let a run speak. 让模型说话。"""
    from recollect.run import Run
    from recollect.speaking import speak

    settings: dict[str, Any] = {"tokens": tokens, "greedy": greedy, "temperature": temperature, "seed": seed}
    settings |= {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    pieces = speak(Run(run), prompt, settings, stop or [])
    if as_json:
        typer.echo(json.dumps({"prompt": prompt, "text": "".join(pieces)}, ensure_ascii=False))
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


class _Reporter:
    """Prints what training reports: every evaluation as a line, and on a terminal the newest update below it."""

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.latest = as_json, {}  # type: bool, dict[str, Any]

    def __call__(self, row: dict[str, Any]) -> None:
        if self.as_json:
            typer.echo(json.dumps(row))
        elif "valid_loss" in row:
            typer.echo(self._line(row))
        else:
            self.latest = row
            if sys.stderr.isatty():
                sys.stderr.write(f"\rstep {row['step']}  loss {row['train_loss']:.4f}  {row['seconds']:.0f} s ")
                sys.stderr.flush()

    def _line(self, row: dict[str, Any]) -> str:
        line = f"step {row['step']:>6}  valid {row['valid_loss']:.4f}"
        if self.latest:
            speed = self.latest["tokens"] / max(self.latest["seconds"], 1e-9)
            line += f"  train {self.latest['train_loss']:.4f}  {self.latest['seconds']:.1f} s  {speed:,.0f} tokens/s"
        return line


def _budget(text: str) -> dict[str, Any]:
    """Read 30s, 5m, 1h, 2000steps or 1000000tokens."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h|steps?|tokens?)", text.strip())
    if match is None:
        raise ValueError(f"--budget: seen {text!r}, wanted 30s, 5m, 1h, 2000steps or 1000000tokens")
    number, unit = float(match[1]), match[2]
    if unit in ("s", "m", "h"):
        return {"max_seconds": number * {"s": 1, "m": 60, "h": 3600}[unit]}
    return {"max_steps" if unit.startswith("step") else "max_tokens": int(number)}


def _notice(text: str) -> None:
    typer.echo(f"recollect: {text}", err=True)


def _close(is_spent: bool, folder: Any) -> None:
    if is_spent:
        typer.echo(f'Next: recollect generate {folder} "The "', err=True)
        return
    typer.echo(f"recollect: stopped, everything is saved. Go on with: recollect resume {folder}", err=True)
    raise typer.Exit(130)


def _refuse(problem: str, next_command: str) -> None:
    typer.echo(f"recollect: {problem}. Try: {next_command}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Run the command line: 2 for bad input, 1 for a failed run, 130 for Ctrl-C."""
    try:
        app(prog_name="recollect")
    except ValueError as error:
        typer.echo(f"recollect: {error}", err=True)
        sys.exit(2)
    except RuntimeError as error:
        typer.echo(f"recollect: {error}", err=True)
        sys.exit(1)
