"""What does not fit between the tensors of a file and those of a model, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from recollect.core.errors import nearest

SHOWN = 4  # names of each kind of problem in a message


def differences(got: dict[str, tuple[int, ...]], expected: dict[str, tuple[int, ...]]) -> list[str]:
    """Return what is missing, extra or of another shape, each with the nearest name on the other side."""
    missing = [name for name in expected if name not in got]
    extra = [name for name in got if name not in expected]
    other = [name for name in expected if name in got and got[name] != expected[name]]
    found = []
    if missing:
        found.append(f"missing {_listed(missing, lambda name: name + _nearest(name, extra))}")
    if extra:
        found.append(f"extra {_listed(extra, lambda name: name + _nearest(name, missing))}")
    if other:
        shapes = {name: f"{name} (got {got[name]}, expected {expected[name]})" for name in other}
        found.append(f"of another shape {_listed(other, shapes.__getitem__)}")
    return found


def _listed(names: Sequence[str], show: Callable[[str], str]) -> str:
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(show(name) for name in names[:SHOWN]) + rest


def _nearest(name: str, others: Iterable[str]) -> str:
    hint = nearest(name, others).removeprefix("; did you mean ").removesuffix("?")
    return f" (nearest: {hint})" if hint else ""
