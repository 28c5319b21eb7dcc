"""The command line's application, the options that its verbs share, and how they end."""

from __future__ import annotations

import shlex
import sys
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from typer.core import TyperGroup

from recollect.core.launch import launched
from recollect.version import __version__

if TYPE_CHECKING:
    from recollect.runs.run import Run

ORDER = (  # in the order of --help; others follow
    "demo", "models", "plan", "train", "resume", "evaluate", "generate", "predict", "finetune", "compare", "claims",
    "inspect", "serve", "export", "embed", "settings", "doctor", "bench",
)  # fmt: skip


class Verbs(TyperGroup):
    """The verbs in the order in which they are needed; one that Ctrl-C ends says how it is started again."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names in order."""
        return sorted(super().list_commands(ctx), key=lambda name: [*ORDER, name].index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb that was typed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("", err=True, nl=sys.stderr.isatty())  # the terminal has written ^C
            notice(f"stopped. Again with: {shlex.join(['recollect', *sys.argv[1:]])}")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Verbs,
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
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Any other setting, one or several: rate=0.01 layers=2; also --NAME VALUE."
    ),
]


Code = Annotated[
    str | None, typer.Option("-m", "--model", help="For a run of a user-defined layer: path/to/file.py:Name.")
]
TaskCode = Annotated[str | None, typer.Option("--task", help="For a run of a user-defined task: path/to/file.py:Name.")]


NO_SETTINGS = {"data", "task", "model", "size", "budget", "out", "report"}  # arguments and flags of their own


@cache
def command() -> Any:
    """Return the command with all verbs, once: typer takes 30 ms to read their signatures."""
    return typer.main.get_command(app)


def flags_of(verb: str) -> set[str]:
    """Return the long flags of a verb."""
    return {name for option in command().commands[verb].params for name in option.opts if name.startswith("--")}


def settings_of(settings: list[str] | None, **flags: object) -> dict[str, Any]:
    """Return the settings given by flags and by --set."""
    from recollect.core.settings import SettingError, parse

    named = {name: value for name, value in flags.items() if value is not None}
    given = dict(parse(text) for text in settings or [])
    for name in NO_SETTINGS & given.keys():
        raise SettingError(f"--set {name}: it is no setting; see: recollect train --help")
    return named | given


def open_run(run: str, device: str, model: str | None, task: str | None) -> Run:
    """Load a run, with user code only where it is given."""
    from recollect.models.own import load_name
    from recollect.runs.run import load

    own = {name: load_name(code) for name, code in (("model", model), ("task", task)) if code is not None}
    return load(run, device=device, **own)


def notice(text: str) -> None:
    """Print a line about the command itself."""
    typer.echo(f"recollect: {text}", err=True)


def close(run: Run) -> None:
    """Print the command that comes next; exit with 130 where training was stopped."""
    if not launched().is_first:
        raise typer.Exit(0 if run.is_spent else 130)
    if run.is_spent:
        verb = "generate" if hasattr(run.task, "generate") else "predict"
        typer.echo(f"Next: {run.command(verb, run.prompt())}", err=True)
        return
    notice(f"stopped, everything is saved. Resume with: {run.command('resume')}")
    raise typer.Exit(130)


def refuse(problem: str, next_command: str) -> NoReturn:
    """Print what is wrong and what to type, and exit with 2."""
    typer.echo(f"recollect: {problem}. Try: {next_command}", err=True)
    raise typer.Exit(2)
