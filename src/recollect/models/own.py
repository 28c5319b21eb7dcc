"""Layers of one's own as models: a class or function from a width to a SequenceLayer, known by a name.

A name is `path/to/file.py:Name`, or `module:Name` where the class was passed in Python. A run's config keeps the name
and never the code: whoever loads the run passes the class or the file again.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from recollect.core.layer import SequenceLayer
from recollect.core.validate import nearest

MakeLayer: TypeAlias = Callable[[int], SequenceLayer[Any]]  # the width of inputs and outputs to a layer

_layers: dict[str, MakeLayer] = {}


def is_own(name: str) -> bool:
    """Return whether a name is that of somebody's own class or function."""
    return ":" in name


def register_layer(make: MakeLayer, name: str | None = None) -> str:
    """Make a layer known by a name, its module's and its own unless given, and return the name."""
    known = name or f"{make.__module__}:{make.__qualname__}"
    _layers[known] = make
    return known


def find_layer(name: str) -> MakeLayer:
    """Return a layer that was registered; refuse a name that was not, since no code is loaded unasked."""
    if name not in _layers:
        raise ValueError(
            f"model: {name} is somebody's own code, which is never loaded without being asked for; "
            f"pass the class (rc.load(RUN, model=MyLayer)) or the file (-m {name})"
        )
    return _layers[name]


def load_name(reference: str) -> Any:
    """Return what `path/to/file.py:Name` names, by running the file."""
    path, _, name = reference.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"{reference}: there is no file {path!r}; expected path/to/file.py:Name")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{reference}: {path!r} is no Python file; expected path/to/file.py:Name")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path}: cannot be run ({type(error).__name__}: {error})") from error
    if not hasattr(module, name):
        public = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise ValueError(f"{reference}: {path} defines no {name!r}{nearest(name, public)}")
    return getattr(module, name)


def make_own(name: str, width: int) -> SequenceLayer[Any]:
    """Return a layer of one's own for a width; refuse what is no SequenceLayer or has other widths."""
    layer = find_layer(name)(width)
    if not isinstance(layer, SequenceLayer):
        raise ValueError(
            f"{name}: got a {type(layer).__name__}, expected a recollect.SequenceLayer; see CONTRIBUTING.md"
        )
    if (layer.width, layer.width_out) != (width, width):
        widths = f"{layer.width} to {layer.width_out}"
        raise ValueError(f"{name}({width}): got a layer from width {widths}, expected {width} to {width}")
    return layer
