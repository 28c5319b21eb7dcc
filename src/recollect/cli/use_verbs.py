"""`evaluate`, `generate`, `predict`, `embed` and `export`: the verbs that use a run."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recollect.cli.app import (
    AsJson,
    Code,
    Device,
    ModelFolder,
    RunFolder,
    TaskCode,
    app,
    notice,
    open_run,
    refuse,
    settings_of,
)
from recollect.cli.outputs import check_output
from recollect.core.threads import fitting_threads

if TYPE_CHECKING:
    from recollect.pretrained.load import Pretrained
    from recollect.runs.run import Run


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA...", help="By default the run's own test part.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Symbols in a cold window, or in a target at most.")] = None,
    device: Device = "auto",
    model: Code = None,
    task: TaskCode = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on DATA. 评估模型。"""
    from recollect.cli.early import check_numbers, check_run

    check_run(run, data, device)
    check_numbers(steps=steps)
    from recollect.core.observer import observed
    from recollect.runs.progress import EvaluationLine

    with closing(EvaluationLine(sys.stderr)) as line, observed(line.show):
        scores = open_run(run, device, model, task).evaluate(data or None, steps)
    if as_json:
        typer.echo(json.dumps({"run": run, **scores.as_json()}, ensure_ascii=False))
        return
    typer.echo(str(scores))
    for line in (*scores.details.get("signatures", []), *scores.details.get("lines", [])):
        typer.echo(line)


def _generator(run: str, device: str, model: str | None) -> Run | Pretrained:
    """Load a run or a pretrained model."""
    from recollect.runs.embed import open_model

    return open_model(run, device=device) if model is None else open_run(run, device, model, None)


@app.command()
def generate(
    run: ModelFolder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to continue.")],
    tokens: Annotated[int, typer.Option(help="Symbols to add.")] = 200,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always select the most likely symbol.")] = False,
    temperature: Annotated[float, typer.Option(help="Divides the logits: lower is less random.")] = 0.8,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k most likely symbols.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the most likely, of total probability p.")] = None,
    beam: Annotated[
        int | None, typer.Option(help="Search for the likeliest text with so many beams, instead of sampling.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    device: Device = "auto",
    model: Code = None,
    more: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Also min_p, repetition_penalty.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Continue a prompt with a run. 续写一段文字。"""
    from recollect.cli.early import check_device, check_folder, check_numbers, check_sampling

    settings: dict[str, Any] = {"tokens": tokens, "greedy": greedy, "temperature": temperature, "seed": seed}
    settings |= {"top_k": top_k, "top_p": top_p} | settings_of(more)
    check_folder(run)
    check_device(device)
    check_numbers(beam=beam)
    check_sampling(**settings)
    if beam is not None and (greedy or top_k or top_p or more):
        refuse("--beam: it searches and does not sample", f"recollect generate {shlex.quote(run)} … --beam {beam}")
    settings |= {} if beam is None else {"beam": beam}
    with fitting_threads(notice):
        opened = _generator(run, device, model)
        if beam is not None and not hasattr(opened, "task"):
            refuse(f"--beam: {run} is a pretrained model, which samples", f"recollect generate {shlex.quote(run)} …")
        chunks = opened.stream(prompt, stop or [], **settings)
        if as_json:
            typer.echo(json.dumps({"prompt": prompt, "text": "".join(chunks)}, ensure_ascii=False))
            return
        first = next(chunks, "")  # before the prompt is printed: what cannot be generated prints nothing
        sys.stdout.write(prompt + first)
        for chunk in chunks:
            sys.stdout.write(chunk)
            sys.stdout.flush()
        sys.stdout.write("\n")


@app.command()
def predict(
    run: RunFolder,
    words: Annotated[str, typer.Argument(metavar="INPUT", help="A line, a file, -, a picture or a folder.")],
    beam: Annotated[int | None, typer.Option(help="Beam width, by default 5; 1 is greedy.")] = None,
    nbest: Annotated[int | None, typer.Option(help="Answers for each input, by default 1.")] = None,
    maps: Annotated[str | None, typer.Option(help="Also write a page of attention maps.")] = None,
    plot: Annotated[str | None, typer.Option(help="Also draw the forecasts, as .html or .svg.")] = None,
    device: Device = "auto",
    model: Code = None,
    task: TaskCode = None,
    as_json: AsJson = False,
) -> None:
    """Predict translations, captions, labels, tags, ratings or forecasts with a run. 用训练好的模型做预测。"""
    from recollect.cli.early import check_numbers, check_run

    check_run(run, device=device)
    check_numbers(beam=beam, nbest=nbest)
    check_output("--maps", maps, ".html")
    check_output("--plot", plot, ".svg", ".html")
    opened = open_run(run, device, model, task)
    if maps is not None and not hasattr(opened.task, "attention"):
        refuse(
            f"--maps: the task {opened.task.name} has no attention maps",
            opened.command("predict", words),
        )
    if plot is not None and not hasattr(opened.task, "plot"):
        refuse(f"--plot: the task {opened.task.name} has no plots", f"recollect predict {run} {shlex.quote(words)}")
    rows = opened.predict(words, **settings_of(None, beam=beam, nbest=nbest))
    if plot is not None:
        opened.plot(rows, plot)
    if maps is not None:
        from recollect.core.machine import describe
        from recollect.views.maps import write_maps

        pairs = [(row.source, row.targets[0].text) for row in rows]
        weights = [opened.attention(*pair) for pair in pairs]
        machine = describe(next(opened.model.parameters()).device)
        write_maps(maps, pairs, weights, run=run, family=opened.config().family, machine=machine)
    for row in rows:
        if as_json:
            typer.echo(json.dumps(row.as_json(), ensure_ascii=False))
            continue
        name = f"{row.source}\t" if opened.task.shows_names else ""  # as in a captions.tsv
        for target in row.targets:
            typer.echo(name + (target.text if len(row.targets) == 1 else f"{target.score:.4f}\t{target.text}"))


@app.command()
def embed(
    run: ModelFolder,
    words: Annotated[str, typer.Argument(metavar="INPUT", help="A line, a file of lines, or -.")],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Print a vector for each line of INPUT. 为每一行文字输出一个向量。"""
    from recollect.cli.early import check_device, check_folder

    check_folder(run)
    check_device(device)
    from recollect.data.text.input_lines import lines_of
    from recollect.runs.embed import open_model

    opened = open_model(run, device=device)
    options = getattr(getattr(opened, "task", None), "options", None)  # a pretrained model has none
    lines = lines_of(words, getattr(options, "field", None))
    for start in range(0, len(lines), 1024):
        some = lines[start : start + 1024]
        for line, vector in zip(some, opened.embed(some).tolist(), strict=True):
            if as_json:
                typer.echo(json.dumps({"text": line, "vector": vector}, ensure_ascii=False))
            else:
                typer.echo(" ".join(f"{value:.7g}" for value in vector))


@app.command()
def export(
    run: RunFolder,
    to: Annotated[str, typer.Option(help="hf: for transformers; onnx: one step; torch: torch.nn's names.")] = "hf",
    out: Annotated[str | None, typer.Option(help="The folder to write; by default RUN/FORMAT.")] = None,
    model: Code = None,
) -> None:
    """Write a run in the format of another program. 导出为其他程序可读取的格式。"""
    from recollect.cli.early import check_run

    if to not in EXPORTS:
        refuse(
            f"--to: got {to!r}, expected one of {', '.join(EXPORTS)}", f"recollect export {shlex.quote(run)} --to hf"
        )
    check_run(run)
    module, function, use = EXPORTS[to]
    write = getattr(import_module(f"recollect.exporting.{module}"), function)
    opened = open_run(run, "cpu", model, None)
    folder = write(opened, out)
    verb = "generate" if hasattr(opened.task, "generate") else "embed"
    typer.echo(f"{folder}: {use.format(folder=shlex.quote(str(folder)), verb=verb)}")


EXPORTS = {  # by format: the module, the function that writes it, and how to use the result
    "hf": (
        "hugging_face",
        "export_run",
        "load it with transformers' AutoModel classes, or: recollect {verb} {folder} TEXT",
    ),
    "onnx": ("onnx_folder", "export_onnx", "equal to the model in ONNX Runtime; python {folder}/generate.py TEXT"),
    "torch": ("torch_folder", "export_torch", "equal to the model in torch.nn; python {folder}/generate.py TEXT"),
}
