"""A text larger than what may be held: a corpus is built by streaming."""

from __future__ import annotations

import subprocess
import sys

import pytest

SIZE = 100_000_000
PROGRAM = """
import resource, sys
from recollect.data.text.corpus import load_corpus
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
corpus = load_corpus(sys.argv[1], tokenizer="byte", cache=sys.argv[2])
print(len(corpus.train) + len(corpus.valid) + len(corpus.test), peak() - before)
"""


@pytest.mark.slow
def test_a_large_file_is_never_held(tmp_path):
    path, line = tmp_path / "large.txt", b"the same line, over and over, so that nothing needs to be drawn at random\n"
    with path.open("wb") as file:
        for _ in range(100):
            file.write((line * (SIZE // 100 // len(line) + 1))[: SIZE // 100])
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "cache")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    symbols, grown = map(int, result.stdout.split())
    assert symbols == SIZE
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kilobytes elsewhere
    assert grown * unit < SIZE / 2
