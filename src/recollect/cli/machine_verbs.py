"""`doctor` and `bench`: what the machine has, and how fast it is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from recollect.cli.app import AsJson, app, notice
from recollect.cli.outputs import check_output


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check what this machine has, and what of it is used. 检查本机环境，以及哪些加速已启用。"""
    from dataclasses import asdict

    from recollect.cli.doctor import examine

    findings = []
    for found in examine():
        findings.append(found)
        if not as_json:
            typer.echo(f"{found.state:<7} {found.name:<13} {found.says}")
            if found.next:
                typer.echo(f"{'':21} try: {found.next}")
    broken = [found for found in findings if found.state == "broken"]
    if as_json:
        typer.echo(json.dumps({"ok": not broken, "findings": [asdict(f) for f in findings]}, ensure_ascii=False))
    if broken:
        notice(f"{', '.join(f.name for f in broken)}: required, but broken. Try: {broken[0].next}")
        raise typer.Exit(1)


@app.command()
def bench(
    gpu: Annotated[bool, typer.Option("--gpu", help="Time the GPU: bf16, batch 64, 1024 steps.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and few rounds, to try the command.")] = False,
    out: Annotated[str | None, typer.Option(help="Also save the record in this .json file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time our layers and torch.nn's, interleaved, on this machine. 在本机上与 torch.nn 交替计时对比。"""
    from pathlib import Path

    words = ["recollect bench", *(["--gpu"] if gpu else []), *(["--quick"] if quick else [])]
    check_output("--out", out)
    from recollect.bench.contest_table import Bench, head, legend, line, run_bench

    if not as_json:
        typer.echo(head())
    result = run_bench(Bench(gpu, quick), " ".join(words), lambda row: None if as_json else typer.echo(line(row)))
    written = json.dumps(result, indent=1, ensure_ascii=False)
    if out is not None:
        Path(out).write_text(f"{written}\n", encoding="utf-8")
    typer.echo(written if as_json else f"\n{legend(result)}")
