"""The command line as a user types it."""

from __future__ import annotations

import subprocess
import sys


def run(*words: str, code: int = 0, **options) -> subprocess.CompletedProcess[str]:
    """Run a command, and see that it ends with a code."""
    command = [sys.executable, "-m", "recollect", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == code, done.stderr
    return done
