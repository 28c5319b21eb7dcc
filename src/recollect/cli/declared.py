"""The settings that a task and its models declare, read from their source: importing them would import torch.

Only what is written out is read: a declaration that has to be computed by other code is left to whoever imports it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import recollect
from recollect.core.errors import nearest
from recollect.core.settings import SettingError, check_against, setting
from recollect.tasks.register import HOMES

BUILTINS: dict[str, Any] = {
    "None": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "tuple": tuple,
    "dict": dict,
}
BUILTINS |= {"Literal": Literal, "setting": setting}
TRANSFER = ("recollect.training.transfer", "Transfer")
TRAINING = ("recollect.runs.config", "TrainingOptions")


def check_settings(
    task: str, given: Mapping[str, object], flags: Iterable[str] = (), *, is_finetuned: bool = False
) -> None:
    """Raise a SettingError for a name that no model of the task has, or a value out of its range.

    `flags` are those of the verb, one of which an unknown name may have been meant as.
    """
    owners = [_declared(*place) for place in (*_owners(task), *([TRANSFER] if is_finetuned else []))]
    known = set[str]().union(*owners)
    for name, value in given.items():
        if name not in known:
            see = f"; see: recollect settings --task {task}"
            raise SettingError(f"{name}: no such setting of the task {task}{nearest(name, [*flags, *known])}{see}")
        found = [owner[name] for owner in owners if name in owner]
        if len(found) == 1 and found[0] is not None:  # of two owners, the model that is chosen decides
            check_against(found[0], {name: value})


def _owners(task: str) -> Iterator[tuple[str, str]]:
    """Yield the module and name of the dataclasses that declare settings: of training, task and model."""
    yield TRAINING
    module, name = HOMES[task]
    for wanted in ("Options", "Config"):
        yield next(found for found in _attributes(module, name, wanted))


def _attributes(module: str, name: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield the classes that an attribute of a class names, its own before those of its bases."""
    for home, node in _family(module, name):
        for line in node.body:
            match line:
                case ast.AnnAssign(target=ast.Name(id=found), value=ast.Name(id=named)) if found == wanted:
                    yield home, named


@cache
def _declared(module: str, name: str) -> dict[str, type | None]:
    """Return each setting of a dataclass as one that declares it alone; None: it has to be imported to be known."""
    found: dict[str, type | None] = {}
    for home, node in reversed(list(_family(module, name))):
        names = _Names(home)
        for line in node.body:
            if not (isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None):
                continue
            if ast.unparse(line.annotation).startswith("ClassVar"):
                continue
            field = line.target.id
            try:
                kind = _value(line.annotation, names)
                found[field] = make_dataclass(field, [(field, kind, _value(line.value, names))])
            except Exception:  # whatever this expression needs is not written out here
                found[field] = None
    return found


def _family(module: str, name: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield a class of this package and its bases, as source, each with the module it stands in."""
    found = _contents(module).get(name)
    if isinstance(found, tuple):
        yield from _family(*found)
    elif isinstance(found, ast.ClassDef):
        yield module, found
        for base in found.bases:
            if isinstance(base, ast.Name):
                yield from _family(module, base.id)


@cache
def _contents(module: str) -> dict[str, ast.AST | tuple[str, str]]:
    """Return what a module of this package defines by name: classes, values, and imports as module and name."""
    path = Path(recollect.__path__[0], *module.split(".")[1:]).with_suffix(".py")
    found: dict[str, ast.AST | tuple[str, str]] = {}
    if not module.startswith("recollect.") or not path.is_file():
        return found
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    return found


class _Names(dict[str, Any]):
    """The values of a module's names, each read when it is asked for; KeyError for one that is not written out."""

    def __init__(self, module: str) -> None:
        super().__init__(BUILTINS)
        self.module = module

    def __missing__(self, name: str) -> Any:
        found = _contents(self.module)[name]
        if isinstance(found, tuple):
            return _Names(found[0])[found[1]]
        return _value(found, self)


def _value(node: ast.AST, names: _Names) -> Any:
    """Return the value of an expression of this package's own source."""
    code = compile(ast.Expression(node), "<declaration>", "eval")  # type: ignore[arg-type]
    return eval(code, {"__builtins__": {}}, names)
