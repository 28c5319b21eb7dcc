"""The import floors: no module knows one above it. Reads the source; imports nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "recollect"
FLOORS = [
    ["version", "core"],
    ["layers", "accel"],
    ["laws", "models"],
    ["data"],
    ["generation"],
    ["evaluation"],
    ["training"],
    ["tasks", "views", "runs", "cli", "bench"],
    ["__main__"],
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def imported(source: str) -> set[str]:
    """Give the parts of recollect that a source imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            first, _, rest = name.partition(".")
            if first == "recollect" and rest:
                found.add(rest.partition(".")[0])
            elif first == "recollect":
                found |= {alias.name for alias in node.names}
    return found


def part_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def too_high(path: Path, source: str) -> list[str]:
    part = part_of(path)
    if part == "accel":  # a plug-in beside the floors
        return sorted(imported(source) - {"accel", "core", "layers", "generation"})
    return sorted(name for name in imported(source) if FLOOR.get(name, len(FLOORS)) > FLOOR[part])


MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_imports_from_above(path):
    assert part_of(path) in FLOOR, f"{part_of(path)} has no floor: add it to FLOORS"
    assert not too_high(path, path.read_text(encoding="utf-8"))


def test_an_import_from_above_is_seen():
    assert too_high(
        PACKAGE / "core" / "memory.py", "def f():\n    from recollect.layers.recurrent.rnn import RNN\n"
    ) == ["layers"]
    assert too_high(PACKAGE / "layers" / "rnn.py", "import recollect.cli.main") == ["cli"]
    assert too_high(PACKAGE / "layers" / "rnn.py", "from recollect import models") == ["models"]


def test_memory_knows_nothing_else():
    assert not imported((PACKAGE / "core" / "memory.py").read_text(encoding="utf-8"))
