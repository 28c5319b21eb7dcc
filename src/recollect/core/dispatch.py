"""The wall between mathematics and device code: fast forms register here, and everything else asks here.

A layer's file holds its mathematics and a `fast` that needs nothing but torch. Our own device code lives in
`recollect.accel`, which no other folder imports: this module loads `recollect.accel.cpu` or `recollect.accel.cuda` by
name, when a tensor of that device is first read. Each registers its forms under the names of `HOOKS`. A form returns
None where it does not apply, and then the caller reads without it.

`RECOLLECT_ACCEL=off` in the environment, or `with without_accel():`, leaves every form out; results are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import local
from typing import Any, TypeAlias

Form: TypeAlias = Callable[..., Any]

HOOKS = {
    "layer": "(layer, x, memory or None, valid): read with one layer that declares a `kernel`",
    "neighbours": "(layers, x, memories, valid): read with the first of a Stack's layers, as many as can be joined",
    "both_directions": "(forwards, backwards, x, memories, valid): read with the two layers of a Bidirectional",
    "decode_step": "a decode step that is repeated: recorded, compiled or captured",
    "decode_loop": "choosing and reading in turn without returning to Python",
    "decode_refusal": "(model): why a model's decode step is not repeated; an empty text where it is",
    "compiler": "(): what compiles device code here, tried on a tiny source",
    "reasons": "(): why forms are not used here, by name",
}

_forms: dict[tuple[str, str], Form] = {}  # by hook and device type
_missing: dict[str, str] = {}  # why a device type has no forms
_tried: set[str] = set()


class _Switch(local):
    """Whether this thread uses our device code."""

    is_on = os.environ.get("RECOLLECT_ACCEL", "on") != "off"


_switch = _Switch()


def register(hook: str, device: str, form: Form) -> None:
    """Offer a fast form for a hook on a type of device."""
    if hook not in HOOKS:
        raise ValueError(f"hook: got {hook!r}, expected one of {', '.join(HOOKS)}")
    _forms[hook, device] = form


def find(hook: str, device: str) -> Form | None:
    """Return the form for a hook on a type of device; None: there is none."""
    if not _switch.is_on:
        return None
    if device not in _tried:
        _load(device)
    return _forms.get((hook, device))


def ask(hook: str, device: str, *given: Any, **options: Any) -> Any:
    """Return what the form for a hook gives on a type of device; None: there is none, or it does not apply."""
    form = find(hook, device)
    return None if form is None else form(*given, **options)


def why_not(device: str) -> list[str]:
    """Return the reasons why fast forms of a type of device are not used, for `recollect doctor`."""
    if not _switch.is_on:
        return ["switched off: RECOLLECT_ACCEL=off"]
    found = ask("reasons", device)
    return [_missing[device]] if device in _missing else list(found or [])


@contextmanager
def without_accel() -> Iterator[None]:
    """Use no device code of ours in this thread."""
    before = _switch.is_on
    _switch.is_on = False
    try:
        yield
    finally:
        _switch.is_on = before


def _load(device: str) -> None:
    _tried.add(device)
    name = f"recollect.accel.{device}"
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(str(error.name)):
            raise
        _missing[device] = f"{name} is not installed"
