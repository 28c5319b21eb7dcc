"""A trace: what a model computed while it read, as named arrays with named axes."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recollect.core.types import JsonObject
from recollect.inspection.names import known

if TYPE_CHECKING:
    from recollect.views.picture import Picture

VERSION = 1  # of the JSON
DIGITS = 4  # significant ones in JSON
Array: TypeAlias = NDArray[Any]
Text: TypeAlias = Mapping[str, str]  # by language, "en" and "zh"


@dataclass(frozen=True, eq=False)
class Trace(Mapping[str, Array]):
    """Named arrays of one model that read one sequence; the names are those of docs/decisions/0026-trace.md.

    `trace["layers.0.hidden"]` is an array, `trace.axes("layers.0.hidden")` names its axes, `trace.as_json()` holds the
    same under the same names. `missing` gives the reason for each group of names that this model does not have.

    >>> trace = rc.Trace.of(["a", "b"], {"loss": [2.5, 0.5], "layers.0.weights": [[[1.0, 0.0], [0.5, 0.5]]]})
    >>> trace["loss"].tolist(), trace.axes("layers.0.weights")
    ([2.5, 0.5], ('head', 'token', 'attended'))
    """

    tokens: tuple[str, ...]  # what was read (T); of a model with a source: the target
    arrays: Mapping[str, Array]
    named_axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of arrays whose names are not ours
    source: tuple[str, ...] = ()  # of a model with a source (S); empty: inputs are the tokens
    outcomes: tuple[str, ...] = ()  # texts of what `reach`, `saliency` and `left_out` explain (O)
    labels: tuple[str, ...] = ()  # names of labels or tags (C)
    skipped: int = 0  # tokens before the first of `tokens` that were read and are not shown
    model: JsonObject = field(default_factory=dict)  # name, family, task, parameters, growth, changes …
    layers: Sequence[JsonObject] = ()  # of each remembering layer: name, kind, path, heads, units, direction …
    missing: Mapping[str, Text] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        if name not in self.arrays:
            reason = self.missing.get(name, {}).get("en")
            has = f"it has: {', '.join(self.arrays)}" if reason is None else reason
            raise KeyError(f"{name!r} is not in this trace; {has}")
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names along the axis `input`: the source's, else the tokens."""
        return self.source or self.tokens

    def axes(self, name: str) -> tuple[str, ...]:
        """Return the names of an array's axes."""
        one = known(name)
        return self.named_axes[name] if one is None else one.axes

    @classmethod
    def of(
        cls,
        tokens: Sequence[str],
        arrays: Mapping[str, ArrayLike],
        *,
        axes: Mapping[str, Sequence[str]] | None = None,
        **facts: Any,
    ) -> Trace:
        """Return a trace of arrays from anywhere, to draw the same pictures of them.

        Names of ours have our axes; `axes` names those of other arrays. `facts` are `source`, `labels`, `model` ….
        """
        made = {name: np.asarray(values) for name, values in arrays.items()}
        others = {name: tuple(named) for name, named in (axes or {}).items()}
        trace = cls(tuple(tokens), made, others, **facts)
        for name, array in made.items():
            trace._check(name, array)
        return trace

    def _check(self, name: str, array: Array) -> None:
        """Raise a ValueError where an array does not fit its axes."""
        if known(name) is None and name not in self.named_axes:
            raise ValueError(f"{name}: not a name of a trace, expected its axes, as in axes={{{name!r}: ('token',)}}")
        axes = self.axes(name)
        if array.ndim != len(axes):
            raise ValueError(f"{name}: got shape {array.shape}, expected {len(axes)} axes: {', '.join(axes)}")
        read = self.source if name.startswith("encoder.") else self.tokens
        lengths = {"token": [len(read)], "input": [len(self.inputs)], "attended": [len(read), len(self.inputs)]}
        lengths |= {"label": [len(self.labels)]} if self.labels else {}
        for axis, size in zip(axes, array.shape, strict=True):
            expected = lengths.get(axis, [size])
            if size not in expected:
                raise ValueError(f"{name}: got {size} along {axis}, expected {expected[0]}")

    def as_json(self, *, digits: int = DIGITS, units: int | None = None) -> JsonObject:
        """Return everything as plain data, numbers with so many significant digits; what is not finite is null.

        `units`: of each layer only the states' units that vary most; `layers[i]["shown_units"]` lists which.
        """
        shown = {} if units is None else self._varying(units)
        arrays = {}
        for name, array in self.arrays.items():
            axes = self.axes(name)
            kept = shown.get(_layer_of(name)) if "unit" in axes and "gate" not in axes else None
            values = array if kept is None else array.take(kept, axis=axes.index("unit"))
            arrays[name] = {"axes": list(axes), "shape": list(values.shape), "values": _compact(values, digits)}
        layers = [
            {**one, "shown_units": shown[one["name"]].tolist()} if one["name"] in shown else dict(one)
            for one in self.layers
        ]
        return {
            "version": VERSION,
            "model": dict(self.model),
            "tokens": list(self.tokens),
            "source": list(self.source),
            "outcomes": list(self.outcomes),
            "labels": list(self.labels),
            "skipped": self.skipped,
            "layers": layers,
            "arrays": arrays,
            "missing": {name: dict(text) for name, text in self.missing.items()},
        }

    def _varying(self, units: int) -> dict[str, NDArray[np.intp]]:
        """Return of each layer with more units the indices, in order, of those whose state varies most."""
        found = {}
        for one in self.layers:
            states = self.arrays.get(f"{one['name']}.cell", self.arrays.get(f"{one['name']}.hidden"))
            if states is not None and states.shape[1] > units:
                found[one["name"]] = np.sort(np.argsort(-states.std(0), kind="stable")[:units])
        return found

    def picture(self, name: str, *, lang: str = "en", **options: Any) -> Picture:
        """Return a picture of this trace by name; see `rc.picture`."""
        from recollect.inspection.pictures import picture

        return picture(name, self, lang=lang, **options)

    def _repr_html_(self) -> str:
        from recollect.inspection.trace_pictures import overview
        from recollect.inspection.words import Say

        return f"<p>{html.escape(str(self))}</p>{overview(self, Say())._repr_html_()}"

    def __str__(self) -> str:
        named = self.model.get("name", "arrays")
        return f"Trace of {named}: {len(self.tokens)} tokens, {len(self.arrays)} arrays"

    __repr__ = __str__


def _layer_of(name: str) -> str:
    return name.rpartition(".")[0]


def _compact(array: Array, digits: int) -> Any:
    """Return nested lists, of numbers with so many significant digits."""
    if array.dtype.kind in "USO":
        return [str(one) for one in array] if array.ndim == 1 else [_compact(row, digits) for row in array]
    return array.tolist() if array.dtype.kind in "iub" else _rounded(array.tolist(), digits)


def _rounded(values: Any, digits: int) -> Any:
    if isinstance(values, list):
        return [_rounded(one, digits) for one in values]
    return float(f"{values:.{digits}g}") if math.isfinite(values) else None
