"""Every public name has a docstring with an example, and every example gives what it shows."""

from __future__ import annotations

import doctest
import inspect
import sys

import pytest
import torch

import recollect as rc

NAMES = [name for name in rc.__all__ if name != "__version__"]


def docstring(name: str) -> str:
    """Return a name's own docstring: an inherited one describes something else."""
    value = getattr(rc, name)
    return (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""


@pytest.mark.parametrize("name", NAMES)
def test_the_example_gives_what_it_shows(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # runs that an example trains leave nothing behind
    torch.manual_seed(0)
    module = vars(sys.modules[inspect.unwrap(getattr(rc, name)).__module__])
    found = doctest.DocTestParser().get_doctest(docstring(name), {**module, "rc": rc, "torch": torch}, name, None, 0)
    assert found.examples, f"{name}: no example in its docstring"
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=said.append)
    assert not said, "".join(said)


def test_a_name_without_an_example_is_noticed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(rc.GRU, "__doc__", "A layer.")
    with pytest.raises(AssertionError, match="GRU: no example"):
        test_the_example_gives_what_it_shows("GRU", tmp_path, monkeypatch)


def test_a_wrong_example_is_noticed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(rc.GRU, "__doc__", "A layer.\n\n>>> 1 + 1\n3\n")
    with pytest.raises(AssertionError, match="Expected"):
        test_the_example_gives_what_it_shows("GRU", tmp_path, monkeypatch)
