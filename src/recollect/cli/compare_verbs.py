"""`compare`: which model for these data and this budget."""

from __future__ import annotations

import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from recollect.cli.app import (
    AsJson,
    Data,
    Device,
    SetOptions,
    Size,
    TaskName,
    app,
    console,
    notice,
    refuse,
    settings_of,
)

Models = Annotated[str, typer.Option("-m", "--models", help="Names, or path/to/file.py:Name, joined by commas.")]
Budget = Annotated[str, typer.Option(help="60s, 1e6tok, steps=2000, params=1M, or 60s,params=1M.")]
Rates = Annotated[str | None, typer.Option(help="Learning rates to try for every model: 1e-3,3e-3.")]


@app.command()
def compare(
    data: Data,
    models: Models,
    task: TaskName = None,
    budget: Budget = "60s",
    size: Size = "tiny",
    seeds: Annotated[int, typer.Option(help="Trainings of each model.")] = 3,
    rates: Rates = None,
    out: Annotated[str, typer.Option(help="The folder of the comparison.")] = "comparison",
    jobs: Annotated[int | None, typer.Option(help="Trainings at once; by default one for each core or GPU.")] = None,
    device: Device = "auto",
    ray: Annotated[bool, typer.Option("--ray", help="Train on the machines of a Ray cluster.")] = False,
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Compare models within one budget, with a verdict. 在同一预算下对比多个模型，并给出结论。"""
    from recollect.cli.early import check_comparison, check_numbers

    check_numbers(seeds=seeds, jobs=jobs)
    if ray and find_spec("ray") is None:
        refuse("--ray: ray is not installed", "pip install 'recollect[cluster]'")
    given: dict[str, Any] = settings_of(settings)
    check_comparison(data, models, task=task, size=size, device=device, settings=given)
    tried = _rates(rates)
    from recollect.cli.compare_table import LiveCells
    from recollect.comparison.compare import compare as run_comparison

    again = f"recollect {shlex.join(sys.argv[1:])}" if sys.argv[1:2] == ["compare"] else "recollect compare"
    options: dict[str, Any] = {"task": task, "budget": budget, "size": size, "seeds": seeds, "rates": tried}
    try:
        with LiveCells(console, is_quiet=as_json) as live:
            found = run_comparison(
                data, models.split(","), **options, device=device, out=out, jobs=jobs, ray=ray, look=live.look, **given
            )
    except KeyboardInterrupt:
        notice(f"stopped, everything is saved. Continue with: {again}")
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        console.print(live.results(found))
        for sentence in found.verdict:
            typer.echo(f"\n{sentence.en}\n{sentence.zh}")
        typer.echo(f"\nThe page: {Path(out) / 'report.html'}")
    if not found.is_whole:
        raise typer.Exit(1)


def _rates(text: str | None) -> list[float]:
    """Return the rates to try."""
    from recollect.core.settings import SettingError

    try:
        rates = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        rates = [-1.0]
    if any(not 0 < rate < 10 for rate in rates):
        raise SettingError(f"--rates: got {text!r}, expected learning rates above 0, as in 1e-3,3e-3")
    return rates
