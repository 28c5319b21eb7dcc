"""A compiler for the tests that ask for one, and a cache of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recollect.generate import compiling
from recollect.kernels import c_compiler


@pytest.fixture(scope="session")
def compiled_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def compiler(compiled_before: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Need a compiler, and keep what it makes out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(compiled_before))
    try:
        c_compiler.find_compiler()
    except c_compiler.NoCompiler as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    compiling.REASONS.clear()
    return compiled_before
