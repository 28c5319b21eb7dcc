"""The command line: parse, call, print. torch is imported only by the verbs that need it."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import typer

from recollect.cli import (
    claim_verbs,
    compare_verbs,
    inspect_verb,
    line_verbs,
    machine_verbs,
    serve_verb,
    train_verbs,
    use_verbs,
)
from recollect.cli.app import app
from recollect.core.threads import note_start

VERBS = (
    line_verbs,
    train_verbs,
    use_verbs,
    inspect_verb,
    serve_verb,
    compare_verbs,
    claim_verbs,
    machine_verbs,
)  # importing them registers their commands, in this order


def _as_settings(words: list[str]) -> list[str]:
    """Return a command line with --NAME VALUE as --set NAME=VALUE where a verb that trains has no such flag.

    So every setting can be typed as a flag, whatever the task, and a name that is no setting is refused as one.
    """
    if words[:1] not in (["train"], ["plan"], ["compare"], ["finetune"]):
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
