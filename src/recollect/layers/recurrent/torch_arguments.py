"""Errors for arguments of `torch.nn`'s recurrent modules, with their equivalents here."""

from __future__ import annotations

import difflib
import inspect

NAMES = {"input_size": "width", "hidden_size": "hidden"}
OF_STACKS = ("num_layers", "bidirectional", "dropout")
FACTORY = ("dtype", "device")


def refuse_torch_arguments(kind: type, given: tuple[object, ...], options: dict[str, object]) -> None:
    """Raise a TypeError that names our equivalent where a recurrent layer gets arguments of torch's or unknown ones."""
    if len(given) > 2:
        options = {"num_layers": given[2]} | options  # the third argument of torch's modules
    unknown = [name for name in options if name not in (*_own_names(kind), *FACTORY)]
    if not unknown:
        return
    name = next((one for one in OF_STACKS if one in unknown), unknown[0])
    raise TypeError(
        f"{kind.__name__}: got {name}={options[name]!r}, expected {_equivalent(kind, name, given, options)}"
    )


def _own_names(kind: type) -> list[str]:
    """Return the names of the arguments of a class and its bases."""
    found: dict[str, None] = {}
    for one in kind.__mro__:
        if "__init__" in vars(one):
            found |= dict.fromkeys(inspect.signature(vars(one)["__init__"]).parameters)
    return [name for name in found if name not in ("self", "args", "kwargs", "factory")]


def _equivalent(kind: type, name: str, given: tuple[object, ...], options: dict[str, object]) -> str:
    if name in OF_STACKS:
        sizes = [given[i] if i < len(given) else options.get(of, ours) for i, (of, ours) in enumerate(NAMES.items())]
        layers = options.get("num_layers", 2 if "dropout" in options else 1)
        rest = [f"{key}={options[key]!r}" for key in OF_STACKS[1:] if key in options]
        call = ", ".join([*map(str, sizes), f"layers={layers}", *rest])
        return f"{kind.__name__}.stack({call}): several layers or directions are a stack of layers"
    if name == "batch_first":
        last = "the last states are y[:, -1], for y[-1] is the last sequence"
        return f"inputs of shape (B, T, D): batch first always, there is no flag; {last}"
    if name == "proj_size":
        return f"Stack({kind.__name__}(…), Linear(…)): a projection is a layer of its own"
    if name in NAMES:
        return f"{NAMES[name]}={options[name]!r}"
    names = (*_own_names(kind), *FACTORY)
    near = difflib.get_close_matches(name, names, n=1)
    return near[0] if near else f"one of {', '.join(names)}"
