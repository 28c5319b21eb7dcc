"""User-defined layers as models: a class or function from a width to a SequenceLayer, registered under a name.

A name is `path/to/file.py:Name`, or `module:Name` where the class was passed in Python. A run's config keeps the name
and never the code: to load the run, pass the class or the file again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from recollect.core.layer import SequenceLayer
from recollect.core.types import AnyLayer
from recollect.core.validate import nearest

MakeLayer: TypeAlias = Callable[[int], AnyLayer]  # from the width of inputs and outputs to a layer

_layers: dict[str, MakeLayer] = {}


def is_own(name: str) -> bool:
    """Return whether a name is that of a user-defined class or function."""
    return ":" in name


def register_layer(make: MakeLayer, name: str | None = None) -> str:
    """Register a layer under a name, by default `module:Name`, and return the name."""
    known = name or f"{make.__module__}:{make.__qualname__}"
    _layers[known] = make
    return known


def find_layer(name: str) -> MakeLayer:
    """Return a registered layer; raise a ValueError for another name, since no code is loaded without a request."""
    if name not in _layers:
        raise ValueError(
            f"model: {name} is user code, which is never loaded without a request; "
            f"pass the class (rc.load(RUN, model=MyLayer)) or the file (-m {name})"
        )
    return _layers[name]


def load_name(reference: str) -> Any:
    """Return the object that `path/to/file.py:Name` names, by running the file."""
    path, _, name = reference.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{reference}: there is no file {path!r}; expected path/to/file.py:Name")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{reference}: {path!r} is not a Python file; expected path/to/file.py:Name")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path}: cannot be run ({type(error).__name__}: {error})") from error
    if not hasattr(module, name):
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise ValueError(f"{reference}: {path} defines no {name!r}{nearest(name, public)}")
    return getattr(module, name)


def make_own(name: str, width: int) -> AnyLayer:
    """Return a user-defined layer for a width; raise a ValueError for another type or other widths."""
    layer = find_layer(name)(width)
    if not isinstance(layer, SequenceLayer):
        raise ValueError(
            f"{name}: got a {type(layer).__name__}, expected a recollect.SequenceLayer; see CONTRIBUTING.md"
        )
    if (layer.width, layer.width_out) != (width, width):
        widths = f"{layer.width} to {layer.width_out}"
        raise ValueError(f"{name}({width}): got a layer from width {widths}, expected {width} to {width}")
    return layer
