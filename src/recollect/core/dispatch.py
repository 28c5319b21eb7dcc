"""Dispatch to device code: `recollect.accel` registers its accelerated forms here, and callers look them up here.

A layer's file holds its mathematics and a `fast` that needs only torch. Our own device code lives in
`recollect.accel`, which no other folder imports: this module imports `recollect.accel.cpu` or `recollect.accel.cuda` by
name when a tensor on that device is first read. Each registers its forms under the names of `HOOKS`. A form returns
None where it does not apply; the caller then reads without it.

`RECOLLECT_ACCEL=off` in the environment, or `with without_accel():`, disables every form; results are the same.
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
    "neighbours": "(layers, x, memories, valid): read with the first layers of a Stack, as many as one kernel can fuse",
    "both_directions": "(forwards, backwards, x, memories, valid): read with the two layers of a Bidirectional",
    "decode_step": "(model, modules, steps, memory, patience): decode steps that are compiled or captured once",
    "decode_loop": "(reader, settings, generators): choose and read ids alternately without returning to Python",
    "decode_refusal": "(model): why a model's decode step cannot be repeated; an empty string where it can",
    "linear_maps": "(): a context in which linear maps of many rows are faster, without gradients",
    "compiler": "(): the compiler of device code on this machine, tested on a tiny source",
    "reasons": "(): why forms are not used on this machine",
}

_forms: dict[tuple[str, str], Form] = {}  # by hook and device type
_missing: dict[str, str] = {}  # by device type: why it has no forms
_tried: set[str] = set()


class _Switch(local):
    """Whether this thread uses our device code."""

    is_on = os.environ.get("RECOLLECT_ACCEL", "on") != "off"


_switch = _Switch()


def register(hook: str, device: str, form: Form) -> None:
    """Register an accelerated form for a hook on a type of device."""
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
    """Return the result of the form for a hook on a type of device; None: there is none, or it does not apply."""
    form = find(hook, device)
    return None if form is None else form(*given, **options)


def why_not(device: str) -> list[str]:
    """Return why accelerated forms of a type of device are not used, for `recollect doctor`."""
    if not _switch.is_on:
        return ["switched off: RECOLLECT_ACCEL=off"]
    found = ask("reasons", device)
    return [_missing[device]] if device in _missing else list(found or [])


@contextmanager
def without_accel() -> Iterator[None]:
    """Disable our device code in this thread."""
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
