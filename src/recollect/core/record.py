"""Record inner values by name, without changing a signature.

    with record(model) as seen:
        model(x)
    seen["layers.0.weights"]

Fused kernels expose neither gates nor attention weights, so recording switches every layer to its readable form,
`read`; the **reference** law proves that this form and the fast one agree.

Where a module is called several times for one sequence, as in a decoder that reads step by step, its values are
concatenated along their time axis: `seen[name]` holds all steps. `seen.calls[name]` has the values of each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import local

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook


class _Asked(local):
    """What this thread has switched on."""

    is_readable = False
    recording: Recording | None = None


_asked = _Asked()


class Recording(Mapping[str, Tensor]):
    """Inner values by dotted name: the module's path, then the value's name.

    The values of several calls are concatenated along the time axis where they differ in no other axis. Otherwise, and
    for values without a time axis, the last call's is returned: attention weights over a list that grew between the
    calls, or a state. `calls` has them all, in order; there the hops of one step are separate from later steps too.
    """

    def __init__(self, root: nn.Module) -> None:
        self._paths = {id(module): path for path, module in root.named_modules()}
        self._time_axes: dict[str, int | None] = {}
        self.calls: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, name: str, value: Tensor, time_axis: int | None) -> None:
        """Keep one value; modules outside the recorded tree are ignored."""
        path = self._paths.get(id(module))
        if path is not None:
            name = f"{path}.{name}" if path else name
            self.calls.setdefault(name, []).append(value)
            self._time_axes[name] = time_axis

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.calls:
            raise KeyError(f"{name!r} was not recorded; recorded were: {', '.join(self.calls) or 'no values'}")
        values = self.calls[name]
        axis = self._time_axes[name]
        if len(values) == 1 or axis is None:
            return values[-1]
        other_axes = {(*value.shape[:axis], *value.shape[axis + 1 :]) for value in values}
        return torch.cat(values, dim=axis) if len(other_axes) == 1 else values[-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)


@contextmanager
def readable() -> Iterator[None]:
    """Switch every layer to its readable form, for this thread only."""
    before = _asked.is_readable
    _asked.is_readable = True
    try:
        yield
    finally:
        _asked.is_readable = before


@contextmanager
def record(root: nn.Module) -> Iterator[Recording]:
    """Record the inner values of the layers below `root`, for this thread only.

    One `record` is for one sequence, read in any number of calls.

    >>> layer = rc.SelfAttention(4, 2)
    >>> with rc.record(layer) as inner:
    ...     y, memory = layer(torch.zeros(1, 3, 4))
    >>> inner["weights"][0, 0, 2].tolist()  # the third step looks at three equal ones
    [0.3333333432674408, 0.3333333432674408, 0.3333333432674408]
    """
    before = _asked.recording
    recording = Recording(root)
    _asked.recording = recording
    try:
        with readable():
            yield recording
    finally:
        _asked.recording = before


def is_readable() -> bool:
    """Return whether layers are switched to their readable form."""
    return _asked.is_readable


def is_watched(*modules: nn.Module) -> bool:
    """Return whether any of these modules has a hook: then it must be called, and not bypassed."""
    own = ((m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks) for m in modules)
    return any(map(any, own)) or _has_any_global_hook()


def note(module: nn.Module, time_axis: int | None = 1, /, **values: Tensor) -> None:
    """Pass inner values to the active recording, if there is one.

    `time_axis` is the axis of the new steps in all these values; None: they have none, as for a state.

    >>> class Doubled(rc.Linear):
    ...     def read(self, x, memory, valid):
    ...         rc.note(self, doubled=2 * x)
    ...         return super().read(2 * x, memory, valid)
    >>> layer = Doubled(1, 1)
    >>> with rc.record(layer) as inner:
    ...     y, memory = layer(torch.tensor([[[3.0]]]))
    >>> inner["doubled"].tolist()
    [[[6.0]]]
    """
    if _asked.recording is not None:
        for name, value in values.items():
            _asked.recording.add(module, name, value, time_axis)
