"""The command line: parse, call, print. torch is imported only by the verbs that need it."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from recollect.cli.line_table import line_table, station_table
from recollect.core.errors import nearest
from recollect.core.threads import fitting_threads, note_start
from recollect.models.line import LINE
from recollect.version import __version__

if TYPE_CHECKING:
    from recollect.pretrained.load import Pretrained
    from recollect.runs.run import Run

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
    name: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="One model, with all that is known of it.")
    ] = None,
    lang: Annotated[str, typer.Option(help="The language of the ideas: en or zh.")] = "en",
    as_json: AsJson = False,
) -> None:
    """List the models: year, idea, memory, cost. 列出所有模型：年份、核心思想、记忆与代价。"""
    if lang not in ("en", "zh"):
        _refuse(f"--lang: got {lang!r}, expected en or zh", "recollect models --lang zh")
    shown = [station for station in LINE if name in (None, station.name)]
    if not shown:
        hint = nearest(str(name), [station.name for station in LINE])
        _refuse(f"MODEL: got {name!r}, which is no model{hint.rstrip('?')}", "recollect models")
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
        _notice(f"stopped. Start again with: recollect demo --out {shlex.quote(out)}")
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(asdict(outcome), default=str, ensure_ascii=False))
    else:
        console.print(final_tables(outcome))
        typer.echo(f"\n{next_steps(outcome)}")


Data = Annotated[
    list[str], typer.Argument(metavar="DATA...", help="Files, folders, globs, - or a built-in such as python-docs.")
]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")]
ModelFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or that of a pretrained model.")]


Family = Annotated[
    str | None, typer.Option("-m", "--model", help="A name of recollect models, or path/to/file.py:Name.")
]
Size = Annotated[
    str, typer.Option(help="tiny, small or base: 0.25, 2 or 10 million parameters without embeddings and output.")
]
BudgetWords = Annotated[str, typer.Option(help="30s, 5m, 2000steps, 1000000tokens or 3epochs.")]
Seed = Annotated[int, typer.Option(help="Of weights and of the order of the data.")]
Kind = Annotated[str | None, typer.Option(help="char, byte, word, space or bpe; by default chosen by the text.")]
TaskName = Annotated[
    str | None,
    typer.Option(help="language, translate, classify, forecast … or path/to/file.py:Name; by default chosen by DATA."),
]
Batch = Annotated[int | None, typer.Option(help="Rows in a batch.")]
Steps = Annotated[int | None, typer.Option(help="Symbols in a row of a batch.")]
Device = Annotated[str, typer.Option(help="cpu or cuda; auto selects a GPU where there is one.")]
SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting: rate, dropout …; also as --NAME VALUE."),
]


NO_SETTINGS = {"data", "task", "model", "size", "budget", "out", "report"}  # arguments and flags of their own


def _settings(settings: list[str] | None, **flags: object) -> dict[str, Any]:
    """Return the settings given by flags and by --set."""
    from recollect.core.settings import SettingError, parse

    named = {name: value for name, value in flags.items() if value is not None}
    given = dict(parse(text) for text in settings or [])
    for name in NO_SETTINGS & given.keys():
        raise SettingError(f"--set {name}: it is no setting; see: recollect train --help")
    return named | given


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
    from recollect.cli.early import check_training

    flags: dict[str, Any] = {"task": task, "model": model, "size": size, "budget": budget}
    kept: dict[str, Any] = {"device": device, "tokenizer": tokenizer}
    check_training(data, **flags, **kept, settings=settings, batch=batch, steps=steps, seed=seed)
    from recollect.runs.progress import reporter
    from recollect.runs.train import train as start_training

    given = flags | _settings(settings, seed=seed, **kept, batch_size=batch, steps=steps)
    with closing(reporter(as_json)) as progress:
        run = start_training(data, out=out, report=progress.show, **given)
    _close(run)


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
    settings: SetOptions = None,
    as_json: AsJson = False,
) -> None:
    """Estimate whether a training fits in memory, and how long it takes. 估计显存/内存是否够用、训练需要多久。"""
    from recollect.cli.early import check_training

    flags: dict[str, Any] = {"task": task, "model": model, "size": size, "budget": budget}
    kept: dict[str, Any] = {"device": device, "tokenizer": tokenizer}
    check_training(data, **flags, **kept, settings=settings, batch=batch, steps=steps, seed=seed)
    from recollect.runs.plan import as_table, forecast
    from recollect.runs.train import configure

    given = flags | _settings(settings, seed=seed, **kept, batch_size=batch, steps=steps)
    facts = forecast(configure(data, **given))
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    console.print(as_table(facts))
    typer.echo(f"Next: {facts['next']}", err=True)


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


Code = Annotated[
    str | None, typer.Option("-m", "--model", help="For a run of a user-defined layer: path/to/file.py:Name.")
]
TaskCode = Annotated[str | None, typer.Option("--task", help="For a run of a user-defined task: path/to/file.py:Name.")]


def _open(run: str, device: str, model: str | None, task: str | None) -> Run:
    """Load a run, with user code only where it is given."""
    from recollect.models.own import load_name
    from recollect.runs.run import load

    own = {name: load_name(code) for name, code in (("model", model), ("task", task)) if code is not None}
    return load(run, device=device, **own)


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

    folder = _open(run, "auto", model, task)
    with closing(reporter(as_json)) as progress:
        resume_training(folder, progress.show, _notice, device, budget)
    _close(folder)


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
        scores = _open(run, device, model, task).evaluate(data or None, steps)
    if as_json:
        typer.echo(json.dumps({"run": run, **scores.as_json()}, ensure_ascii=False))
        return
    typer.echo(str(scores))
    for line in (*scores.details.get("signatures", []), *scores.details.get("lines", [])):
        typer.echo(line)


def _generator(run: str, device: str, model: str | None) -> Run | Pretrained:
    """Load a run or a pretrained model."""
    from recollect.runs.embed import open_model

    return open_model(run, device=device) if model is None else _open(run, device, model, None)


@app.command()
def generate(
    run: ModelFolder,
    prompt: Annotated[str, typer.Argument(help="What to continue.")],
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
    settings |= {"top_k": top_k, "top_p": top_p} | _settings(more)
    check_folder(run)
    check_device(device)
    check_numbers(beam=beam)
    check_sampling(**settings)
    if beam is not None and (greedy or top_k or top_p or more):
        _refuse("--beam: it searches and does not sample", f"recollect generate {shlex.quote(run)} … --beam {beam}")
    settings |= {} if beam is None else {"beam": beam}
    with fitting_threads(_notice):
        opened = _generator(run, device, model)
        if beam is not None and not hasattr(opened, "task"):
            _refuse(f"--beam: {run} is a pretrained model, which samples", f"recollect generate {shlex.quote(run)} …")
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
    opened = _open(run, device, model, task)
    if maps is not None and not hasattr(opened.task, "attention"):
        _refuse(
            f"--maps: the task {opened.task.name} has no attention maps",
            opened.command("predict", words),
        )
    if plot is not None and not hasattr(opened.task, "plot"):
        _refuse(f"--plot: the task {opened.task.name} has no plots", f"recollect predict {run} {shlex.quote(words)}")
    rows = opened.predict(words, **_settings(None, beam=beam, nbest=nbest))
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
    from recollect.runs.embed import open_model
    from recollect.tasks.translate import lines_of

    opened = open_model(run, device=device)
    lines = lines_of(words)
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
    to: Annotated[str, typer.Option(help="hf: a folder that transformers loads without custom code.")] = "hf",
    out: Annotated[str | None, typer.Option(help="The folder to write; by default RUN/hf.")] = None,
) -> None:
    """Write a run in the format of another program. 导出为其他程序可读取的格式。"""
    if to != "hf":
        _refuse(f"--to: got {to!r}, expected hf", f"recollect export {shlex.quote(run)} --to hf")
    from recollect.exporting.hugging_face import export_run

    folder = export_run(_open(run, "cpu", None, None), out)
    typer.echo(f"{folder}: load it with transformers' AutoModel classes, or: recollect generate {folder} TEXT")


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
        _notice(f"{', '.join(f.name for f in broken)}: required, but broken. Try: {broken[0].next}")
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
    if out is not None and not Path(out).parent.is_dir():
        _refuse(f"--out: got {out}, but there is no such folder", f"{' '.join(words)} --out bench.json")
    from recollect.bench.contest_table import Bench, head, legend, line, run_bench

    if not as_json:
        typer.echo(head())
    result = run_bench(Bench(gpu, quick), " ".join(words), lambda row: None if as_json else typer.echo(line(row)))
    written = json.dumps(result, indent=1, ensure_ascii=False)
    if out is not None:
        Path(out).write_text(f"{written}\n", encoding="utf-8")
    typer.echo(written if as_json else f"\n{legend(result)}")


def _as_settings(words: list[str]) -> list[str]:
    """Return a command line with --NAME VALUE as --set NAME=VALUE where `train` and `plan` have no such flag.

    So every setting can be typed as a flag, whatever the task, and a name that is no setting is refused as one.
    """
    if words[:1] not in (["train"], ["plan"]):
        return words
    command: Any = typer.main.get_command(app)
    flags = {name for option in command.commands[words[0]].params for name in option.opts} | {"--help"}
    found = words[:1]
    rest = iter(words[1:])
    for word in rest:
        name, separator, value = word.partition("=")
        if not word.startswith("--") or word == "--" or name in flags:
            found.append(word)
            continue
        given = value if separator else next(rest, None)
        found += [word] if given is None else ["--set", f"{name[2:].replace('-', '_')}={given}"]
    return found


def _notice(text: str) -> None:
    typer.echo(f"recollect: {text}", err=True)


def _close(run: Run) -> None:
    if run.is_spent:
        verb = "generate" if hasattr(run.task, "generate") else "predict"
        typer.echo(f"Next: {run.command(verb, run.prompt())}", err=True)
        return
    _notice(f"stopped, everything is saved. Resume with: {run.command('resume')}")
    raise typer.Exit(130)


def _refuse(problem: str, next_command: str) -> None:
    typer.echo(f"recollect: {problem}. Try: {next_command}", err=True)
    raise typer.Exit(2)


def main() -> None:
    """Run the command line; exit with 2 for bad input, 1 for a failed run, 130 for Ctrl-C."""
    note_start()
    try:
        app(_as_settings(sys.argv[1:]), prog_name="recollect")
    except (ValueError, AssertionError) as error:  # a LawBroken is an AssertionError
        kind = type(error).__name__  # by name: whoever raised it has imported torch, main has not
        if not isinstance(error, ValueError) and kind != "LawBroken":
            raise
        is_own_code = kind in ("LawBroken", "OwnCodeError")
        again = f". Mend it, then: {shlex.join(['recollect', *sys.argv[1:]])}" if is_own_code else ""
        typer.echo(f"recollect: {error}{again}", err=True)
        sys.exit(2)
    except (RuntimeError, OSError) as error:
        typer.echo(f"recollect: {error}", err=True)
        sys.exit(1)
