"""The import floors: no module knows one above it, and only core/dispatch knows accel; names that are given once.

Imports nothing: reads.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "recollect"
FLOORS = [
    ["version", "core"],
    ["layers"],
    ["laws", "models"],
    ["data"],
    ["generation"],
    ["evaluation", "pretrained"],
    ["training"],
    ["tasks", "views"],
    ["runs"],
    ["inspection", "exporting", "bench"],
    ["comparison"],
    ["story"],
    ["serving"],
    ["cli"],
    ["__main__"],
]
ACCEL = "accel"  # beside the floors: device code, which core/dispatch loads by name
ACCEL_MAY_KNOW = ("accel", "core", "layers", "generation.settings", "generation.filters")
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def imported(source: str) -> set[str]:
    """Return the dotted names inside recollect that a source imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom):  # what is imported may be a module or a name in one
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.removeprefix("recollect.") for name in names if name.startswith("recollect.")}
    return found


def part_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def too_high(path: Path, source: str) -> list[str]:
    """Return the parts that a module may not import; for accel the modules."""
    part, names = part_of(path), imported(source)
    if part == ACCEL:
        return sorted(n for n in names if not any(n == may or n.startswith(f"{may}.") for may in ACCEL_MAY_KNOW))
    parts = {name.partition(".")[0] for name in names}
    return sorted(name for name in parts if FLOOR.get(name, len(FLOORS)) > FLOOR[part])


def twice(sources: Mapping[Path, str]) -> dict[str, list[str]]:
    """Return the names of classes that several places define, and those of modules that a floor has several times."""
    classes, modules = defaultdict(list), defaultdict(list)
    for path, source in sources.items():
        inside = path.relative_to(PACKAGE)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(f"{inside}:{node.lineno}")
        if path.stem != "__init__":
            modules[FLOOR.get(part_of(path), ACCEL), path.stem].append(str(inside))
    return {
        **{f"class {name}": places for name, places in classes.items() if len(places) > 1},
        **{f"module {name}": places for (_, name), places in modules.items() if len(places) > 1},
    }


MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_module_imports_from_above(path):
    assert part_of(path) in (*FLOOR, ACCEL), f"{part_of(path)} has no floor: add it to FLOORS"
    assert not too_high(path, path.read_text(encoding="utf-8"))


def test_an_import_from_above_is_seen():
    assert too_high(
        PACKAGE / "core" / "memory.py", "def f():\n    from recollect.layers.recurrent.rnn import RNN\n"
    ) == ["layers"]
    assert too_high(PACKAGE / "layers" / "rnn.py", "import recollect.cli.main") == ["cli"]
    assert too_high(PACKAGE / "layers" / "rnn.py", "from recollect import models") == ["models"]


def test_no_class_and_no_module_of_a_floor_has_the_name_of_another():
    assert not twice({path: path.read_text(encoding="utf-8") for path in MODULES})


def test_a_name_given_twice_is_seen():
    sources = {
        PACKAGE / "layers" / "gru.py": "class GRU:\n    pass",
        PACKAGE / "cli" / "table.py": "def f():\n    class GRU: ...\n    class Table: ...",
        PACKAGE / "tasks" / "page.py": "",
        PACKAGE / "views" / "page.py": "",  # tasks and views are one floor
        PACKAGE / "serving" / "page.py": "",
    }
    assert twice(sources) == {
        "class GRU": ["layers/gru.py:1", "cli/table.py:2"],
        "module page": ["tasks/page.py", "views/page.py"],
    }


def test_memory_knows_nothing_else():
    assert not imported((PACKAGE / "core" / "memory.py").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "from recollect.accel.cuda.recurrent import persistent",
        "def f():\n    import recollect.accel.cpu.compiler",
        "from recollect import accel",
    ],
)
@pytest.mark.parametrize(
    "part", ["core/dispatch.py", "layers/recurrent/lstm.py", "generation/sampling.py", "cli/doctor.py"]
)
def test_nothing_outside_imports_accel(part, source):
    assert too_high(PACKAGE / part, source) == [ACCEL]


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("from recollect.generation.settings import Settings\nfrom recollect.core.memory import Memory", []),
        ("from recollect.generation import filters\nfrom recollect.layers.block import Block", []),
        ("from recollect.generation.sampling import generate", ["generation.sampling.generate"]),
        ("def f():\n    from recollect.models.language import LanguageModel", ["models.language.LanguageModel"]),
        ("import recollect.cli.main", ["cli.main"]),
    ],
)
def test_accel_knows_layers_and_what_generation_is_asked_for(source, refused):
    assert too_high(PACKAGE / "accel" / "cuda" / "head_step.py", source) == refused


def test_every_floor_is_there():
    assert {name for name in FLOOR if not (PACKAGE / name).is_dir() and not (PACKAGE / f"{name}.py").is_file()} == set()


TESTS = sorted(
    p for p in Path(__file__).parent.rglob("*.py") if "accel" not in p.relative_to(Path(__file__).parent).parts
)


@pytest.mark.parametrize("path", TESTS, ids=lambda p: p.name)
def test_only_the_tests_of_accel_import_it(path):
    names = imported(path.read_text(encoding="utf-8"))
    assert not {name for name in names if name.partition(".")[0] == ACCEL}
