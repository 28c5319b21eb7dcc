"""`train`, `plan`, `settings` and `resume`: the verbs that make a run."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated, Any

import typer
from rich.table import Table

from recollect.cli.app import (
    AsJson,
    Batch,
    BudgetWords,
    Code,
    Data,
    Device,
    Family,
    Kind,
    ModelFolder,
    RunFolder,
    Seed,
    SetOptions,
    Size,
    Steps,
    TaskCode,
    TaskName,
    app,
    close,
    console,
    notice,
    open_run,
    settings_of,
)


@app.command()
def train(
    data: Data,
    model: Family = None,
    size: Size = "tiny",
    budget: BudgetWords = "60s",
    out: Annotated[str | None, typer.Option(help="The run's folder; by default runs/MODEL.")] = None,
    seed: Seed = 0,
    tokenizer: Kind = None,
    task: TaskName = None,
    batch: Batch = None,
    steps: Steps = None,
    device: Device = "auto",
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on DATA. 训练一个模型。"""
    flags = {"task": task, "model": model, "size": size, "budget": budget}
    given = _checked(data, flags, settings, seed, batch, steps, device=device, tokenizer=tokenizer)
    from recollect.runs.progress import reporter
    from recollect.runs.train import train as start_training

    with closing(reporter(as_json)) as progress:
        run = start_training(data, out=out, report=progress.show, **given)
    close(run)


@app.command()
def finetune(
    run: ModelFolder,
    data: Data,
    task: TaskName = None,
    model: Family = None,
    budget: BudgetWords = "60s",
    out: Annotated[str | None, typer.Option(help="The new run's folder; by default RUN-TASK.")] = None,
    seed: Seed = 0,
    batch: Batch = None,
    device: Device = "auto",
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Train a model on DATA that begins from a trained one. 在已训练的模型上微调。"""
    from recollect.cli.early import check_folder, check_training

    check_folder(run)
    flags: dict[str, Any] = {"task": task, "budget": budget, "model": model, "size": "tiny", "tokenizer": None}
    check_training(data, **flags, device=device, settings=settings, is_finetuned=True, batch=batch, seed=seed)
    from recollect.runs.finetune import finetune as start_training
    from recollect.runs.progress import reporter

    given = settings_of(settings, seed=seed, device=device, batch_size=batch)
    with closing(reporter(as_json)) as progress:
        made = start_training(run, data, task=task, model=model, budget=budget, out=out, report=progress.show, **given)
    close(made)


@app.command()
def plan(
    data: Data,
    model: Family = None,
    size: Size = "tiny",
    budget: BudgetWords = "60s",
    seed: Seed = 0,
    tokenizer: Kind = None,
    task: TaskName = None,
    batch: Batch = None,
    steps: Steps = None,
    device: Device = "auto",
    devices: Annotated[int, typer.Option(min=1, help="How many like this one train together, by torchrun.")] = 1,
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Estimate whether a training fits in memory, and how long it takes. 估计显存/内存是否够用、训练需要多久。"""
    flags = {"task": task, "model": model, "size": size, "budget": budget}
    given = _checked(data, flags, settings, seed, batch, steps, device=device, tokenizer=tokenizer)
    from recollect.runs.plan import as_table, forecast
    from recollect.runs.train import configure

    facts = forecast(configure(data, **given), devices=devices)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    console.print(as_table(facts))
    typer.echo(f"Next: {facts['next']}", err=True)


def _checked(
    data: list[str],
    flags: dict[str, Any],
    settings: list[str] | None,
    seed: int,
    batch: int | None,
    steps: int | None,
    **kept: Any,
) -> dict[str, Any]:
    """Return what `configure` takes of what was typed, which is checked before torch is imported."""
    from recollect.cli.early import check_training

    check_training(data, **flags, **kept, settings=settings, batch=batch, steps=steps, seed=seed)
    return flags | settings_of(settings, seed=seed, **kept, batch_size=batch, steps=steps)


@app.command("settings")
def list_settings(task: TaskName = None, model: Family = None, as_json: AsJson = False) -> None:
    """List the settings for --set: name, default, range, meaning. 列出 --set 可用的设置：名称、默认值、范围和含义。"""
    from recollect.runs.config import list_settings as settings_of

    rows = settings_of(task or "language", model)
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False))
        return
    table = Table(box=None, header_style="bold")
    for column in ("setting", "of", "default", "range", "meaning"):
        table.add_column(column, overflow="fold", no_wrap=column in ("setting", "of", "default"))
    for row in rows:
        table.add_row(row["name"], row["of"], json.dumps(row["default"]), row["range"], row["meaning"])
    console.print(table)


@app.command()
def resume(
    run: RunFolder,
    budget: Annotated[str | None, typer.Option(help="Train further: 5m, 2000steps … more than was spent.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or auto; by default as it was trained.")] = None,
    model: Code = None,
    task: TaskCode = None,
    as_json: AsJson = False,
) -> None:
    """Resume a run where it stopped. 从断点继续训练。"""
    from recollect.cli.early import check_run
    from recollect.runs.budget import parse_budget

    check_run(run, device=device)
    if budget is not None:
        parse_budget(budget)
    from recollect.runs.progress import reporter
    from recollect.runs.train import resume as resume_training

    folder = open_run(run, "auto", model, task)
    with closing(reporter(as_json)) as progress:
        resume_training(folder, progress.show, notice, device, budget)
    close(folder)
