"""See inner values by name without changing a signature.

    with record(model) as seen:
        model(x)
    seen["layers.0.weights"]

Fused kernels show no gates and no attention weights, so recording switches to every layer's readable form,
`read`; the **reference** law proves that this form and the fast one agree.

Where a module is called several times in one reading, as in a decoder that reads step by step, its values are joined
along their time axis: `seen[name]` holds all steps. `seen.calls[name]` has the values of each call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import local

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook


class _Asked(local):
    """What this thread asks of layers."""

    is_readable = False
    recording: Recording | None = None


_asked = _Asked()


class Recording(Mapping[str, Tensor]):
    """Inner values by dotted name: the module's path, then the value's name.

    The values of several calls are joined along the time axis, where they differ in no other. Else, and for values
    without a time axis, the last call's is returned: attention weights over a list that grew between the calls, or
    a state. `calls` has them all, in order; there the hops of one look are told apart from later steps too.
    """

    def __init__(self, root: nn.Module) -> None:
        self._paths = {id(module): path for path, module in root.named_modules()}
        self._time_axes: dict[str, int | None] = {}
        self.calls: dict[str, list[Tensor]] = {}

    def add(self, module: nn.Module, name: str, value: Tensor, time_axis: int | None) -> None:
        """Keep one value; modules outside the recorded tree are passed over."""
        path = self._paths.get(id(module))
        if path is not None:
            name = f"{path}.{name}" if path else name
            self.calls.setdefault(name, []).append(value)
            self._time_axes[name] = time_axis

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.calls:
            raise KeyError(f"{name!r} was not recorded; recorded were: {', '.join(self.calls) or 'no values'}")
        values, axis = self.calls[name], self._time_axes[name]
        if len(values) == 1 or axis is None or len({_without_axis(value.shape, axis) for value in values}) > 1:
            return values[-1]
        return torch.cat(values, dim=axis)

    def __iter__(self) -> Iterator[str]:
        return iter(self.calls)

    def __len__(self) -> int:
        return len(self.calls)


def _without_axis(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


@contextmanager
def readable() -> Iterator[None]:
    """Let every layer use its readable form. For this thread alone."""
    before, _asked.is_readable = _asked.is_readable, True
    try:
        yield
    finally:
        _asked.is_readable = before


@contextmanager
def record(root: nn.Module) -> Iterator[Recording]:
    """Collect what the layers below `root` note while they read. For this thread alone.

    One `record` is for one reading: a sequence, in as many calls as it takes.

    >>> layer = rc.SelfAttention(4, 2)
    >>> with rc.record(layer) as inner:
    ...     y, memory = layer(torch.zeros(1, 3, 4))
    >>> inner["weights"][0, 0, 2].tolist()  # the third step looks at three equal ones
    [0.3333333432674408, 0.3333333432674408, 0.3333333432674408]
    """
    before, _asked.recording = _asked.recording, Recording(root)
    try:
        with readable():
            yield _asked.recording
    finally:
        _asked.recording = before


def is_readable() -> bool:
    """Whether layers are asked for their readable form."""
    return _asked.is_readable


def is_watched(*modules: nn.Module) -> bool:
    """Whether a hook is called when one of these is: then it must be called."""
    own = ((m._forward_hooks, m._forward_pre_hooks, m._backward_hooks, m._backward_pre_hooks) for m in modules)
    return any(map(any, own)) or _has_any_global_hook()


def note(module: nn.Module, time_axis: int | None = 1, /, **values: Tensor) -> None:
    """Offer inner values to whoever records; nothing happens when nobody does.

    `time_axis` is the axis of the new steps in all these values; None: they have none, as a state.

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
