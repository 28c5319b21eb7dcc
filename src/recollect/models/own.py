"""User-defined layers as models: a class or function from a width to a SequenceLayer, registered under a name.

A name is `path/to/file.py:Name`, or `module:Name` where the class was passed in Python. A run's config keeps the name
and never the code: to load the run, pass the class or the file again.
"""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from recollect.core.errors import nearest
from recollect.core.layer import SequenceLayer
from recollect.core.types import AnyLayer

MakeLayer: TypeAlias = Callable[[int], AnyLayer]  # from the width of inputs and outputs to a layer

_layers: dict[str, MakeLayer] = {}


class OwnCodeError(ValueError):
    """User code that cannot be used: the message names it and the reason."""


def register_layer(make: MakeLayer, name: str | None = None) -> str:
    """Register a layer under a name, by default `module:Name`, and return the name."""
    made: object = make
    if isinstance(made, SequenceLayer):
        kind = type(made).__name__
        raise OwnCodeError(
            f"model: got a {kind} that is made already, expected its class, or a function from a width to a layer: "
            f"def {kind.lower()}(width): return {kind}(width, …)"
        )
    known = name or f"{make.__module__}:{make.__qualname__}"
    _layers[known] = make
    return known


def find_layer(name: str) -> MakeLayer:
    """Return a registered layer; raise a ValueError for another name, since no code is loaded without a request."""
    if name not in _layers:
        short = name.rpartition(":")[2]
        raise ValueError(
            f"model: {name} is user code, which is never loaded without a request; "
            f"pass the class (rc.load(RUN, model={short})) or the file ({code_option(name)})"
        )
    return _layers[name]


def code_option(name: str, option: str = "-m") -> str:
    """Return the option that names user code; a class that was passed in Python may be in any file."""
    path, _, short = name.rpartition(":")
    return shlex.join([option, name if path.endswith(".py") else f"path/to/file.py:{short}"])


def load_name(reference: str) -> Any:
    """Return the object that `path/to/file.py:Name` names, by running the file."""
    path, _, name = reference.rpartition(":")
    file = Path(path)
    if not file.is_file() or file.suffix != ".py":
        problem = f"{path!r} is not a Python file" if file.is_file() else f"there is no file {path!r}"
        raise OwnCodeError(f"{reference}: {problem}; expected path/to/file.py:Name")
    module = _run_file(file)
    if not hasattr(module, name):
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise OwnCodeError(f"{reference}: {path} defines no {name!r}{nearest(name, public)}")
    return getattr(module, name)


def _free_name(file: Path) -> str:
    """Return the name of a file's module: its stem, or with its place where another module has that name."""
    taken = sys.modules.get(file.stem)
    if taken is None or getattr(taken, "__file__", None) == str(file):
        return file.stem
    return f"{file.stem}_{sha256(str(file.resolve()).encode()).hexdigest()[:12]}"


def _run_file(file: Path) -> ModuleType:
    name = _free_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None  # every .py file has one
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # dataclasses and exporters look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise OwnCodeError(f"{file}: cannot be run ({type(error).__name__}: {error})") from error
    return module


def make_own(name: str, width: int) -> AnyLayer:
    """Return a user-defined layer for a width; raise OwnCodeError for another type or other widths."""
    make = find_layer(name)
    try:
        layer = make(width)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise OwnCodeError(
            f"{name}({width}): cannot be made from a width alone ({reason}); another is chosen with --set width=128"
        ) from error
    if not isinstance(layer, SequenceLayer):
        raise OwnCodeError(
            f"{name}: got a {type(layer).__name__}, expected a recollect.SequenceLayer; see CONTRIBUTING.md"
        )
    if (layer.width, layer.width_out) != (width, width):
        widths = f"{layer.width} to {layer.width_out}"
        raise OwnCodeError(f"{name}({width}): got a layer from width {widths}, expected {width} to {width}")
    return layer
