"""The command line as a user types it."""

from __future__ import annotations

import io
import subprocess
import sys
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


def _text(content: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content.encode()), encoding="utf-8", write_through=True)


def _written(stream: io.TextIOWrapper) -> str:
    return stream.buffer.getvalue().decode()
