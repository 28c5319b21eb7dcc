"""`serve`: runs behind OpenAI's protocol, with sessions."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from recollect.cli.app import Code, Device, app, notice, refuse
from recollect.core.settings import parse

if TYPE_CHECKING:
    from recollect.serving.server import Access
    from recollect.serving.state import State

PORT = 8000
ROWS, QUEUE = 64, 256
LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")  # every address of the machine: nobody calls it by this name
KEY = "RECOLLECT_API_KEY"
SHAPES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")  # by default 1,024, with buffers of hundreds of megabytes
NUMBERS = {  # of --set: default, least
    "timeout": (300.0, 1.0),  # seconds of one request
    "grace": (10.0, 0.0),  # seconds for what runs when the server is stopped
    "batch_bytes": (None, 2**20),  # of each model's batch; by default from what is free
    "body_bytes": (8 * 2**20, 1024),
    "body_seconds": (20.0, 1.0),
    "session_bytes": (2**30, 1024),
    "sessions": (10_000, 1),
}
LISTS = {  # of --set, names divided by commas: what each must be, and an example
    "allow_host": (r"[^/\s*]+", "models.example.org"),
    "allow_origin": (r"https?://[^/\s*]+", "https://app.example.org"),
}


@app.command()
def serve(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or of pretrained models.")],
    host: Annotated[str, typer.Option(help="The address; another than 127.0.0.1 needs a key.")] = LOOPBACK,
    port: Annotated[int, typer.Option(help="0: any that is free.")] = PORT,
    key_file: Annotated[str | None, typer.Option(help=f"A file of keys, one a line; or one key in {KEY}.")] = None,
    batch: Annotated[int, typer.Option(help="Rows that are continued together, for each model.")] = ROWS,
    queue: Annotated[int, typer.Option(help="Requests that may wait, for each model; others get 429.")] = QUEUE,
    sessions: Annotated[str | None, typer.Option(help="The folder of saved sessions.")] = None,
    device: Device = "auto",
    model: Code = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help=f"Also {', '.join([*NUMBERS, *LISTS])}."),
    ] = None,
) -> None:
    """Serve runs: OpenAI's protocol, sessions, predictions. 以 OpenAI 协议提供服务，会话即记忆。"""
    from recollect.cli.early import check_device, check_folder, check_numbers

    for folder in runs:
        check_folder(folder)
    check_device(device)
    check_numbers(batch=batch, queue=queue)
    given = {"host": (host, LOOPBACK), "port": (port, PORT), "key-file": (key_file, None), "batch": (batch, ROWS)}
    given |= {"queue": (queue, QUEUE), "sessions": (sessions, None), "device": (device, "auto"), "model": (model, None)}
    again = command_of(runs, {name: value for name, (value, default) in given.items() if value != default}, more or [])
    missing = [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]
    if missing:
        refuse(f"serve: {' and '.join(missing)} not installed", "pip install 'recollect[serve]'")
    if not 0 <= port < 65536:
        refuse(f"--port: got {port}, expected 0 to 65535", f"{again} --port {PORT}")
    settings = settings_of(more, again)
    keys = keys_of(key_file, again)
    if host != LOOPBACK and not keys:
        refuse(
            f"--host: {host} can be reached from elsewhere and needs a key", f"{again} --host {host} --key-file KEYS"
        )
    settings |= {"batch": batch, "queue": queue, "device": device, "model": model}
    start(ServeArguments(runs, host, port, keys, sessions, settings, again))


def command_of(runs: list[str], options: Mapping[str, object], more: list[str]) -> str:
    """Return the command that starts the same server."""
    words = [*runs, *chain.from_iterable((f"--{name}", str(value)) for name, value in options.items())]
    return shlex.join(["recollect", "serve", *words, *chain.from_iterable(("--set", text) for text in more)])


@dataclass(frozen=True)
class ServeArguments:
    """What was typed: the runs, where to listen, keys, the folder of sessions, settings, and how to type it again."""

    runs: list[str]
    host: str
    port: int
    keys: list[str]
    sessions: str | None
    settings: dict[str, Any]
    again: str


def settings_of(more: list[str] | None, again: str) -> dict[str, Any]:
    """Return the settings of --set with their defaults."""
    found: dict[str, Any] = {name: default for name, (default, _) in NUMBERS.items()} | dict.fromkeys(LISTS, ())
    for name, value in (parse(text) for text in more or []):
        if name in LISTS:
            found[name] = tuple(one.strip() for one in str(value).split(","))
            wrong = next((one for one in found[name] if not re.fullmatch(LISTS[name][0], one)), None)
            if wrong is not None:
                refuse(f"--set {name}: got {wrong!r}, expected names like {LISTS[name][1]}, divided by commas", again)
        elif name not in NUMBERS:
            refuse(f"--set {name}: no such setting of serve, which has {', '.join([*NUMBERS, *LISTS])}", again)
        elif not isinstance(value, int | float) or not NUMBERS[name][1] <= value < inf:
            refuse(f"--set {name}: got {value!r}, expected a number, at least {NUMBERS[name][1]:g}", again)
        else:
            found[name] = value
    return found


def keys_of(path: str | None, again: str) -> list[str]:
    """Return the keys of a file, or the one of the environment; never one of the command line, which others can see."""
    if path is None and not os.environ.get(KEY):
        return []
    where = f"{KEY}:" if path is None else f"--key-file: {path}"
    try:
        keys = os.environ[KEY].split() if path is None else Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        refuse(f"{where} cannot be read ({error})", f"{again} --key-file KEYS")
    if not keys or min(map(len, keys)) < 16:
        refuse(f"{where} holds no key, or one of fewer than 16 characters", "openssl rand -hex 32 > KEYS")
    return keys


def start(asked: ServeArguments) -> None:
    """Open the runs, serve them until Ctrl-C or SIGTERM, and save the sessions."""
    from recollect.serving.app import listen
    from recollect.serving.server import create_server, server_for

    host, port, settings = asked.host, asked.port, asked.settings
    os.environ.setdefault(*SHAPES)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        sock = listen(port, host)
    except OSError as error:
        problem = f"--port: {port} of {host} cannot be used ({error.strerror or error}) · 端口 {port} 无法使用"
        refuse(problem, f"{asked.again} --port 0")
    with sock:
        state = state_of(asked)
        access = access_of(host, sock.getsockname()[1], asked.keys, settings)
        app = create_server(state, access)
        server = server_for(state, app, settings["grace"])
        address = f"http://{f'[{host}]' if ':' in host else host}:{sock.getsockname()[1]}/v1"
        typer.echo(f"Serving {', '.join(one.name for one in state.models)}: {address}\nCtrl-C ends it.")
        if host in EVERYWHERE and not settings["allow_host"]:
            notice(f"only 127.0.0.1 and localhost are answered; name others: {asked.again} --set allow_host=NAME")
        if app.state.page is not None:
            app.state.page.begin()
        code = 0
        try:
            server.run(sockets=[sock])
        except KeyboardInterrupt as interrupt:
            code = 0 if isinstance(interrupt, Terminated) else 130
        finish(state, asked, code)


def state_of(asked: ServeArguments) -> State:
    """Return the state of a new server: the models are opened, the sessions' folder is locked."""
    from recollect.models.own import load_name
    from recollect.serving.served import open_served
    from recollect.serving.state import Limits, State

    settings = asked.settings
    layer = None if settings["model"] is None else load_name(settings["model"])
    most = {"most": settings["batch"], "queue": settings["queue"], "most_bytes": settings["batch_bytes"]}
    models = open_served(asked.runs, settings["device"], layer, **most)
    limits = Limits(
        seconds=settings["timeout"],
        body_bytes=settings["body_bytes"],
        body_seconds=settings["body_seconds"],
        session_bytes=settings["session_bytes"],
        sessions=settings["sessions"],
    )
    folder = None if asked.sessions is None else Path(asked.sessions)
    return State.of(models, limits, folder, notice, asked.runs, asked.again)


def finish(state: State, asked: ServeArguments, code: int) -> NoReturn:
    """Save the sessions, print what became of them, and exit."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not lose what is being saved
    saved, problems = state.sessions.save_all()
    state.sessions.close()
    for problem in problems:
        typer.echo(f"recollect: {problem}", err=True)
    kept = f"{saved} sessions saved in {asked.sessions}" if asked.sessions is not None else "sessions were not saved"
    notice(f"stopped; {kept if state.sessions.by_id else 'there were no sessions'}. Again with: {asked.again}")
    raise typer.Exit(1 if problems else code)


def access_of(host: str, port: int, keys: list[str], settings: dict[str, Any]) -> Access:
    """Return who may talk to the server."""
    from recollect.serving.guard import hosts_of, own_hosts
    from recollect.serving.server import Access

    own = hosts_of([f"[{host}]" if ":" in host else host], port)
    named = settings["allow_host"]  # a proxy may listen at another port, or at that of HTTP, which is left out
    others = [*named, *(f"{name}:{port}" for name in named if ":" not in name)]
    return Access((*own_hosts(port), *own, *others), keys, settings["allow_origin"])


class Terminated(KeyboardInterrupt):
    """SIGTERM: whoever manages the server stops it, and nothing went wrong."""


def _terminate(*_: object) -> None:
    raise Terminated
