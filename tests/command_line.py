"""The command line as a user types it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

from recollect.cli.main import main


def run(*words: str, code: int = 0, **options) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, and see that it ends with a code."""
    command = [sys.executable, "-m", "recollect", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, done.stderr
    return done


def ask(*words: str, code: int = 0, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which has torch already, and see that it ends with a code.

    What `main` lets through is seen here as an error, as a user would see a traceback.
    """
    out, errors, status = _text(), _text(), 0
    with patch.multiple(sys, argv=["recollect", *words], stdin=_text(given), stdout=out, stderr=errors):
        try:
            main()
        except SystemExit as end:
            status = end.code
    done = subprocess.CompletedProcess(words, status, _written(out), _written(errors))
    assert status == code, done.stderr
    return done


def killed_at(step: int, *words: str) -> None:
    """Run a training in a process of its own, and kill it with SIGKILL at a step."""
    command = [sys.executable, "-m", "recollect", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if any(json.loads(line)["step"] >= step for line in process.stdout):
            process.kill()


def check_killed_and_resumed(*words: str, folder: Path) -> tuple[str, str]:
    """Train undisturbed, and killed at step 13 and resumed: the weights are the same bits; return both folders."""
    whole, killed = str(folder / "whole"), str(folder / "killed")
    ask(*words, "--out", whole)
    killed_at(13, *words, "--out", killed)
    ask("resume", killed)
    check_equal_weights(whole, killed)
    return whole, killed


def check_equal_weights(*runs: str) -> None:
    """See that two runs have the same weights as result, by name."""
    import torch  # here: a test sees that mistakes are refused before torch is imported
    from safetensors.torch import load_file

    ours, theirs = (load_file(Path(run) / "model.safetensors") for run in runs)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def _text(content: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()
