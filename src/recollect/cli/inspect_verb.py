"""`inspect`: the page that looks inside, as a file or live."""

from __future__ import annotations

import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recollect.cli.app import Code, Device, app, notice, refuse
from recollect.cli.outputs import check_output

if TYPE_CHECKING:
    from recollect.inspection.trace import Text
    from recollect.serving.shown_model import ShownModel

PORT = 8642
PAGE = "inspect.html"


@app.command()
def inspect(
    words: Annotated[
        list[str], typer.Argument(metavar="RUN... [TEXT]", help="Folders of runs, or of a demo; then what they read.")
    ],
    live: Annotated[bool, typer.Option("--live", help="Serve the page on 127.0.0.1 and compute what it asks.")] = False,
    out: Annotated[str, typer.Option(help="The file to write.")] = PAGE,
    port: Annotated[int, typer.Option(help="With --live; 0: any that is free.")] = PORT,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
    model: Code = None,
) -> None:
    """Look inside runs: one page on which the same text runs through all of them. 看见模型内部的记忆。"""
    from recollect.cli.early import check_device, check_folder

    folders, text = divide(words)
    check_device(device)
    for folder in folders:
        check_folder(folder)
    if live:
        serve_page(folders, text, words, port, opens, device, model)
        return
    check_output("--out", out, ".html")
    write_page(folders, text, Path(out), device, model)
    typer.echo(f"The page: {out}")
    if opens:
        typer.launch(Path(out).resolve().as_uri())


def divide(words: list[str]) -> tuple[list[str], str | None]:
    """Return the folders and the text: the last word, where it is no folder and not meant as one."""
    *first, last = words
    is_folder = os.path.isdir(last)  # not Path.is_dir, which raises for a text longer than a name may be
    is_meant = not any(c.isspace() for c in last) and "/" in last and os.path.isdir(os.path.dirname(last))
    if is_folder or is_meant:
        return words, None
    if not first:
        refuse(f"RUN: got {last!r}, which is no folder", f"recollect inspect demo {shlex.quote(last)}")
    return first, last


def live_command(words: list[str]) -> str:
    """Return the command that serves the same page live."""
    return f"recollect inspect --live {shlex.join(words)}"


def opened(folders: list[str], device: str, model: str | None) -> tuple[list[ShownModel], list[Text]]:
    """Open the models of the folders; print and return why some of them cannot be shown."""
    from recollect.models.own import load_name
    from recollect.serving.problems import not_shown
    from recollect.serving.shown_model import open_some

    models, problems = open_some(folders, device, None if model is None else load_name(model))
    words = [not_shown(error) for error in problems]
    for word in words:
        notice(word["en"])
    return models, words


def write_page(folders: list[str], text: str | None, out: Path, device: str, model: str | None) -> None:
    """Compute everything that the page may show, and write it as one file."""
    from recollect.core.serialize import write_file
    from recollect.core.threads import fitting_threads
    from recollect.serving.exhibit import exhibit, grid
    from recollect.serving.page import offline_page
    from recollect.serving.shown_model import text_of

    with fitting_threads(notice):
        models, problems = opened(folders, device, model)
        text = text_of(models) if text is None else text
        shown = exhibit(models, text, command=live_command(folders), problems=problems, progress=notice)
        grids = {}
        for one in models:
            notice(f"{one.name}: every knob")
            grids[one.id] = grid(one, text)
    write_file(out, offline_page(shown, grids).encode())


def serve_page(
    folders: list[str], text: str | None, words: list[str], port: int, opens: bool, device: str, model: str | None
) -> None:
    """Serve the page until Ctrl-C."""
    again = live_command(words)
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        refuse(f"--live: {' and '.join(missing)} not installed", "pip install 'recollect[serve]'")
    if not 0 <= port < 65536:
        refuse(f"--port: got {port}, expected 0 to 65535", f"{again} --port {PORT}")
    from recollect.core.threads import fitting_threads
    from recollect.serving.app import listen, serve
    from recollect.serving.live import Live
    from recollect.serving.shown_model import text_of

    try:
        sock = listen(port)
    except OSError as error:
        problem = f"--port: {port} cannot be used ({error.strerror or error}) · 端口 {port} 无法使用"
        refuse(problem, f"{again} --port 0")
    with sock, fitting_threads(notice):
        models, problems = opened(folders, device, model)
        page = Live(models, text_of(models) if text is None else text, again, notice, folders, problems)
        page.exhibit()

        def ready(address: str) -> None:
            typer.echo(f"The page: {address}\nCtrl-C ends it.")
            if opens:
                typer.launch(address)

        try:
            serve(page, sock, ready)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
