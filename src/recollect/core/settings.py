"""Settings that are declared once: name, default, range and meaning, checked before anything starts.

    @dataclass(frozen=True)
    class Options(CheckedSettings):
        rate: float = setting(3e-3, above=0.0, help="peak learning rate")

A value outside its range or of another type raises; a name that does not exist raises with the nearest one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from recollect.core.errors import nearest

LARGEST = 2**63 - 1  # what an integer tensor holds
JSON_NAMES = {
    "NoneType": "null",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a word",
}


class SettingError(ValueError):
    """A setting that does not exist, or a value that it cannot have.

    >>> rc.train("recall", model="gru", ratee=0.1)
    Traceback (most recent call last):
    recollect.core.settings.SettingError: ratee: ...
    """


def setting(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    help: str = "",
) -> Any:
    """Declare a setting: its default, its range or choices, and a line of help.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Options(rc.CheckedSettings):
    ...     rate: float = rc.setting(3e-3, above=0.0, help="peak learning rate")
    ...     schedule: str = rc.setting("cosine", choices=("cosine", "constant"))
    >>> Options(schedule="cosin")
    Traceback (most recent call last):
    recollect.core.settings.SettingError: schedule: got "cosin", expected one of cosine, constant; did you mean cosine?
    """
    limits = {"least": least, "most": most, "above": above, "below": below}
    bounds = {name: limit for name, limit in limits.items() if limit is not None}
    return field(default=default, metadata={"bounds": bounds, "choices": tuple(choices), "help": help})


@dataclass(frozen=True)
class CheckedSettings:
    """Base of all declared settings: every value is checked when the object is made.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Options(rc.CheckedSettings):
    ...     rate: float = rc.setting(3e-3, above=0.0)
    >>> Options(rate=-1.0)
    Traceback (most recent call last):
    recollect.core.settings.SettingError: rate: got -1.0, expected a number, more than 0
    """

    def __post_init__(self) -> None:
        kinds = get_type_hints(type(self))
        for declared in fields(self):
            check(declared, kinds[declared.name], getattr(self, declared.name))


def check(declared: Field[object], kind: object, value: Any, name: str = "") -> None:
    """Raise SettingError unless a value has the declared type and lies in the declared range."""
    allowed, choices = _kinds(declared, kind)
    is_known = type(value) in allowed or (type(value) is int and float in allowed)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_inside = not is_number or (math.isfinite(value) and _is_inside(value, **declared.metadata.get("bounds", {})))
    if type(value) is int and abs(value) > LARGEST:
        raise SettingError(f"{name or declared.name}: got {value:.0e}, expected a number below 2^63")
    is_chosen = not choices or not isinstance(value, str) or value in choices
    if not (is_known and is_inside and is_chosen):
        got = json.dumps(value, default=str)
        hint = nearest(str(value), choices) if choices else ""
        raise SettingError(f"{name or declared.name}: got {got}, expected {range_of(declared, kind)}{hint}")


def check_against(config: type, settings: Mapping[str, object]) -> None:
    """Check given settings against a dataclass that declares them, without an instance of it."""
    kinds = get_type_hints(config)
    declared = {f.name: f for f in fields(config)}
    for name, value in settings.items():
        check(declared[name], kinds[name], value)


def is_plain(kind: object) -> bool:
    """Return whether a type is one that `check` knows: words, numbers, true or false, null, or a choice of them."""
    parts = (kind,) if get_origin(kind) is Literal else get_args(kind) or (kind,)
    return all(get_origin(part) is Literal or getattr(part, "__name__", "") in JSON_NAMES for part in parts)


def _kinds(declared: Field[object], kind: object) -> tuple[tuple[type, ...], tuple[str, ...]]:
    """Return the types that a setting may have, and its choices where it is a string."""
    parts = (kind,) if get_origin(kind) is Literal else get_args(kind) or (kind,)
    choices = declared.metadata.get("choices", ()) or tuple(
        w for p in parts if get_origin(p) is Literal for w in get_args(p)
    )
    return tuple(str if get_origin(p) is Literal else p for p in parts), choices


def _is_inside(
    value: float, least: float = -math.inf, most: float = math.inf, above: float = -math.inf, below: float = math.inf
) -> bool:
    return least <= value <= most and above < value < below


def range_of(declared: Field[object], kind: object) -> str:
    """Return the values that a setting may have, in words."""
    words = {"least": "at least", "most": "at most", "above": "more than", "below": "less than"}
    bounds = [f"{words[name]} {limit:g}" for name, limit in declared.metadata.get("bounds", {}).items()]
    kinds, choices = _kinds(declared, kind)
    names = [f"one of {', '.join(choices)}" if k is str and choices else JSON_NAMES[k.__name__] for k in kinds]
    return " or ".join(names) + (f", {', '.join(bounds)}" if bounds else "")


def described(config: type) -> Iterator[tuple[Field[object], str, str]]:
    """Yield each setting that a dataclass declares, with its range and its meaning in words."""
    kinds = get_type_hints(config)
    for declared in [one for one in fields(config) if is_plain(kinds[one.name])]:
        yield declared, range_of(declared, kinds[declared.name]), declared.metadata.get("help", "")


def parse(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE from the command line; a value is JSON, or else a plain string."""
    name, separator, word = text.partition("=")
    if not separator:
        raise SettingError(f"--set: got {text!r}, expected NAME=VALUE, as in --set rate=0.001")
    try:
        return name, json.loads(word)
    except ValueError:
        return name, word


def refuse_unused(options: CheckedSettings, names: Iterable[str], why: str) -> None:
    """Raise a SettingError for the first of some settings that was given a value without effect."""
    for declared in fields(options):
        value = getattr(options, declared.name)
        if declared.name in names and value != declared.default:
            raise SettingError(f"{declared.name}: got {json.dumps(value)}, but {why}; leave it out")


def share_out(
    given: Mapping[str, object], declared: Mapping[str, Iterable[str]], where: str
) -> dict[str, dict[str, Any]]:
    """Return the given settings by the owner that declares them; raise for an unknown name, with the nearest."""
    shares: dict[str, dict[str, Any]] = {owner: {} for owner in declared}
    known = {name: owner for owner, names in declared.items() for name in names}
    for name, value in given.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise SettingError(f"{name}: no such setting of {where}, which has {names}{nearest(name, known)}")
        shares[known[name]][name] = value
    return shares


def differing(settings: Any, usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from what is usual, or else from their defaults."""
    values = {f.name: (getattr(settings, f.name), f.default) for f in fields(cast(Any, settings))}
    return {name: value for name, (value, default) in values.items() if value != usual.get(name, default)}
