"""`claims`: every claim of the story, measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recollect.cli.app import AsJson, app, console, notice, refuse

if TYPE_CHECKING:
    from recollect.story.claim import Claim, Result
    from recollect.story.running import Outcome

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Claims by their ids, such as C31.")]

LIST_HEADS = {"en": ("id", "budget", "verdict", "claim"), "zh": ("编号", "用时", "判定", "论断")}
BUDGETS_ZH = {"seconds": "数秒", "minutes": "数分钟", "gpu": "GPU", "source": "出处"}
LABELS_ZH = {
    "claim": "论断",
    "said": "原说法",
    "seed": "出处",
    "expected": "预期",
    "rule": "判定规则",
    "effect": "效应与区间",
    "baseline": "基线",
    "leak check": "泄漏检查",
}


@app.command()
def claims(
    names: Ids = None,
    is_all: Annotated[bool, typer.Option("--all", help="Also those that take minutes.")] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Those that need a GPU.")] = False,
    is_list: Annotated[bool, typer.Option("--list", help="List them with what is known; measure nothing.")] = False,
    is_again: Annotated[bool, typer.Option("--again", help="Measure again what has a result.")] = False,
    seeds: Annotated[int, typer.Option(help="Of each experiment.")] = 5,
    out: Annotated[str | None, typer.Option(help="The folder of the results.")] = None,
    lang: Annotated[str, typer.Option(help="en or zh.")] = "en",
    as_json: AsJson = False,
) -> None:
    """Put the claims of the story to the test. 用实验检验故事中的每条论断。"""
    from recollect.story.register import chosen, claims as all_claims
    from recollect.story.results import results_folder

    if lang not in ("en", "zh"):
        refuse(f"--lang: got {lang!r}, expected en or zh", "recollect claims --list --lang zh")
    if seeds < 1:
        refuse(f"--seeds: got {seeds}, expected at least 1", "recollect claims --seeds 5")
    folder = results_folder(out)
    budgets = ("gpu",) if gpu else ("seconds", "minutes") if is_all else ("seconds",)
    asked = list(all_claims()) if is_list and not names else chosen(names or [], budgets)
    if is_list:
        _list(asked, folder, lang, as_json)
        return
    if not asked:
        notice("no claim is of this class: what needs a GPU is measured by benchmarks/, and cited")
        if as_json:
            typer.echo("[]")
        return
    outcomes = _run(asked, gpu, seeds, folder, is_again, lang, as_json)
    if any(outcome.problem for outcome in outcomes):
        raise typer.Exit(1)


def _run(
    asked: list[Claim], gpu: bool, seeds: int, folder: object, is_again: bool, lang: str, as_json: bool
) -> list[Outcome]:
    from pathlib import Path

    import torch

    from recollect.story.claim import Budget
    from recollect.story.running import run_claims

    needs_gpu = gpu or any(claim.budget == "gpu" for claim in asked)
    if needs_gpu and not torch.cuda.is_available():
        refuse("--gpu: torch finds no GPU here, and these claims need one", "recollect claims --all")
    budget = Budget(seeds, "cuda" if needs_gpu else "cpu")
    is_one = len(asked) == 1
    show = (lambda outcome: None) if as_json or is_one else (lambda outcome: console.print(_line(outcome, lang)))
    outcomes = run_claims(asked, budget, Path(str(folder)), show, is_again, workers=1 if needs_gpu else None)
    if as_json:
        typer.echo(json.dumps([_as_json(outcome) for outcome in outcomes], ensure_ascii=False))
    elif is_one:
        _show(outcomes[0], lang)
    return outcomes


def _as_json(outcome: Outcome) -> dict[str, object]:
    result = None if outcome.result is None else outcome.result.as_json()
    return {"id": outcome.claim.id, "problem": outcome.problem or None, "result": result}


def _line(outcome: Outcome, lang: str) -> str:
    from recollect.story.pages import found_in_words, verdict_in_words

    name = outcome.claim.id
    if outcome.problem:
        return f"{name:5} {'failed: ' if lang == 'en' else '失败：'}{outcome.problem}"
    verdict = getattr(verdict_in_words(outcome.claim, outcome.result), lang)
    stop = ". " if lang == "en" else "。"
    return f"{name:5} [bold]{verdict}[/bold]{stop}{getattr(found_in_words(outcome.claim, outcome.result), lang)}"


def _list(asked: list[Claim], folder: object, lang: str, as_json: bool) -> None:
    from dataclasses import asdict
    from pathlib import Path

    from recollect.story.pages import verdict_in_words
    from recollect.story.results import result_of

    found = [(claim, result_of(claim, Path(str(folder)))) for claim in asked]
    if as_json:
        rows = [{**asdict(claim), "verdict": result.verdict if result else None} for claim, result in found]
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold")
    for column in LIST_HEADS[lang]:
        table.add_column(column, overflow="fold", no_wrap=column in ("id", "编号"))
    for claim, result in found:
        text = claim.text.en if lang == "en" else claim.text.zh
        table.add_row(
            claim.id,
            claim.budget if lang == "en" else BUDGETS_ZH[claim.budget],
            getattr(verdict_in_words(claim, result), lang),
            text,
        )
    console.print(table)


def _show(outcome: Outcome, lang: str) -> None:
    """Print one claim with all that was measured, and write its page."""
    claim, result = outcome.claim, outcome.result
    if outcome.problem:
        notice(f"{claim.id}: {outcome.problem}")
        return
    console.print(_line(outcome, lang), highlight=False)
    table = Table(box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _details(claim, result, lang):
        if value:
            table.add_row(name if lang == "en" else LABELS_ZH[name], value)
    console.print(table)
    if result is not None:
        _figure(claim, result, lang)


def _details(claim: Claim, result: Result | None, lang: str) -> list[tuple[str, str]]:
    """Return what is printed of a claim, by its English label; a rule that is not translated is left out in Chinese."""
    found = [
        ("claim", getattr(claim.text, lang)),
        ("said", getattr(claim.says, lang) if claim.says else ""),
        ("seed", claim.seed),
        ("expected", getattr(claim.expected, lang)),
        ("rule", claim.rule if lang == "en" else claim.rule_zh),
    ]
    if result is None:
        return found
    low, high = result.interval
    colon = ": " if lang == "en" else "："
    return [
        *found,
        ("effect", f"{result.effect:.4g} [{low:.4g}, {high:.4g}]"),
        ("baseline", f"{getattr(result.baseline.name, lang)}{colon}{result.baseline.value:.4g}"),
        ("leak check", getattr(result.leak.name, lang)),
    ]


def _figure(claim: Claim, result: Result, lang: str) -> None:
    """Print the points of the figure, and write it to a page."""
    import torch

    from recollect.core.cache import cache_folder
    from recollect.core.machine import describe
    from recollect.core.serialize import write_file
    from recollect.story.figures import name_of
    from recollect.story.pages import page_of

    if result.chart is not None:
        table = Table(box=None, header_style="bold", title=getattr(result.chart.title, lang))
        table.add_column(getattr(result.chart.x, lang), justify="right")
        for curve in result.chart.curves:
            table.add_column(getattr(name_of(curve.name), lang), justify="right")
        places = sorted({x for curve in result.chart.curves for x, _ in curve.points})
        shown = [places[round(i * (len(places) - 1) / 15)] for i in range(16)] if len(places) > 16 else places
        for x in dict.fromkeys(shown):
            values = [dict(curve.points).get(x) for curve in result.chart.curves]
            table.add_row(f"{x:g}", *("" if value is None else f"{value:.4g}" for value in values))
        console.print(table)
    path = cache_folder(None) / "claims" / f"{claim.id}.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page_of(claim, result, describe(torch.device("cpu"))).encode())
    typer.echo(f"The page: {path}" if lang == "en" else f"网页：{path}")
