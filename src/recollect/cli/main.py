"""The command line: parse, call, print. torch is imported only by the verbs that need it."""

from __future__ import annotations

import os
import shlex
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

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
from recollect.cli.app import app as app, command, flags_of
from recollect.core.threads import note_start

ALONE = 10.0  # seconds that another process of torchrun waits before it prints an error
VERBS = (
    line_verbs,
    train_verbs,
    use_verbs,
    inspect_verb,
    serve_verb,
    compare_verbs,
    claim_verbs,
    machine_verbs,
)  # importing them registers their commands


def _as_settings(words: list[str]) -> list[str]:
    """Return a command line with --NAME VALUE as --set NAME=VALUE where a verb that trains has no such flag.

    So every setting can be typed as a flag, whatever the task, and a name that is no setting is refused as one.
    Several settings may follow one --set: --set layers=2 width=256.
    """
    if words[:1] not in (["train"], ["plan"], ["compare"], ["finetune"]):
        return words
    flags = flags_of(words[0]) | {"--help"}
    found = words[:1]
    rest = iter(words[1:])
    for word in rest:
        name, separator, value = word.partition("=")
        is_setting = separator and name.isidentifier() and found[-2:-1] == ["--set"] and not Path(word).exists()
        if is_setting:
            found += ["--set", word]
        elif word == "--":
            found += [word, *rest]
        elif word.startswith("--") and name not in flags:
            given = value if separator else next(rest, None)
            found += [word] if given is None else ["--set", f"{name[2:].replace('-', '_')}={given}"]
        else:
            found.append(word)
    return found


def main() -> None:
    """Run the command line; exit with 2 for bad input, 1 for a failed run, 130 for Ctrl-C."""
    note_start()
    if "LOCAL_RANK" in os.environ:  # of several processes: torch's hints to developers, before it is imported
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        command()(_as_settings(sys.argv[1:]), prog_name="recollect")
    except (ValueError, AssertionError) as error:  # a LawBroken is an AssertionError
        kind = type(error).__name__  # by name: whoever raised it has imported torch, main has not
        if not isinstance(error, ValueError) and kind != "LawBroken":
            raise
        is_own_code = kind in ("LawBroken", "OwnCodeError")
        again = f". Mend it, then: {shlex.join(['recollect', *sys.argv[1:]])}" if is_own_code else ""
        _fail(f"{error}{again}", 2)
    except (RuntimeError, OSError, MemoryError) as error:
        _fail(_in_words(error), 1)


def _in_words(error: Exception) -> str:
    """Return an error's message; where memory did not suffice, with the settings that take it."""
    is_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if not is_memory and "can't allocate memory" not in str(error):
        return str(error)
    reason = (str(error).splitlines() or ["out of memory"])[0]
    return f"memory does not suffice ({reason}); set a smaller --batch, --steps, --size or width; see: recollect plan"


def _fail(problem: str, code: int) -> NoReturn:
    """Print what is wrong and exit; of several processes on a machine, the first one is given time to print it alone.

    Where it fails too, torchrun ends the others meanwhile, or they find that the same mistake is printed already.
    """
    if os.environ.get("LOCAL_RANK", "0") != "0":
        time.sleep(ALONE)
    if not _is_printed(problem):
        typer.echo(f"recollect: {problem}", err=True)
    sys.exit(code)


def _is_printed(problem: str) -> bool:
    """Return whether another process of torchrun on this machine has printed this; else note that this one does.

    The note is a file in the folder of this start of the processes, which torchrun deletes.
    """
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not place:
        return False
    try:
        (Path(place).parent.parent / f"printed-{sha256(problem.encode()).hexdigest()}").touch(exist_ok=False)
    except FileExistsError:
        return True
    except OSError:
        pass  # it can be printed twice
    return False
