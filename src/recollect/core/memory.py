"""What a layer remembers: plain, immutable data that the caller owns.

A memory is a frozen dataclass whose fields are tensors, memories, or tuples of them. Axis 0 of every
tensor is the batch. The verbs below are written once, over the fields; a new kind of memory declares its
fields and inherits them all:

    @dataclass(frozen=True, eq=False, kw_only=True)
    class Hidden(Memory):
        hidden: Tensor  # (B, H)

Three functions declare fields of other kinds: `grows(axis)` a tensor with an axis that lengthens with the sequence,
`static()` a plain value that belongs to the memory's identity, `hint(default)` a plain value that only saves work
and may always be reset to its default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree
from typing_extensions import Self

Rows: TypeAlias = Tensor | Sequence[int] | slice
Part: TypeAlias = "Tensor | Memory | tuple[Part, ...]"


def grows(axis: int = 1) -> Any:
    """Declare a tensor field whose `axis` lengthens as the sequence is read.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, eq=False, kw_only=True)
    ... class Heard(rc.Growing):
    ...     sounds: torch.Tensor = rc.grows(1)  # (B, S, D)
    >>> heard = Heard(sounds=torch.ones(2, 3, 4), length=torch.tensor([3, 1]))
    >>> heard.select([1]).nbytes
    56
    """
    return field(metadata={"grows": axis})


def static(default: object = None) -> Any:
    """Declare a plain value that is part of the memory's identity, such as a window's limit."""
    return field(default=default, metadata={"static": True})


def hint(default: object = False) -> Any:
    """Declare a plain value that only saves work; resetting it to its default is always correct."""
    return field(default=default, metadata={"static": True, "hint": True})


@dataclass(frozen=True, eq=False, kw_only=True)
class Memory:
    """What is remembered of a batch of sequences. Immutable; every method returns a new memory.

    >>> memory = rc.Hidden(hidden=torch.tensor([[1.0], [2.0]]))
    >>> memory.select([1, 1, 0]).hidden.tolist(), memory.nbytes
    ([[2.0], [2.0], [1.0]], 8)
    >>> rc.Hidden.cat([memory.select([1]), memory.select([0])]).hidden.tolist()
    [[2.0], [1.0]]
    """

    kinds: ClassVar[dict[str, type[Memory]]] = {}  # by the name that files use

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        Memory.kinds[cls.kind()] = cls
        _pytree.register_pytree_node(
            cls,
            lambda memory: _flatten(memory),
            lambda parts, context: _unflatten(cls, parts, context),
            serialized_type_name=f"recollect.core.memory:{cls.kind()}",
        )

    @classmethod
    def kind(cls) -> str:
        """Return the name of this kind in files; the package's own omit the module, so that they may move."""
        is_ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]
        return cls.__qualname__ if is_ours else f"{cls.__module__}.{cls.__qualname__}"

    # ---- operations ------------------------------------------------------------------------------

    def select(self, rows: Rows) -> Self:
        """Return any rows, in any order, with repeats; always a copy."""
        index = self._index(rows)
        return self._map(lambda t: t.index_select(0, index), lambda m: m.select(index))

    def reorder(self, rows: Rows) -> Self:
        """Select rows within one source, for beam search: as many rows as before; `Fixed` parts do not move."""
        index = self._index(rows)
        if self.tensors() and len(index) != self.batch_size:
            raise ValueError(f"rows: got {len(index)} rows, expected {self.batch_size}: reorder keeps the batch size")
        return self._map(lambda t: t.index_select(0, index), lambda m: m.reorder(index))

    def detach(self) -> Self:
        """Cut the autograd graph here, for truncated back-propagation."""
        return self._map(Tensor.detach, lambda m: m.detach())

    def to(self, *args: torch.device | str | torch.dtype) -> Self:
        """Move to a device, a dtype or both. A dtype applies to floating-point tensors only."""

        def move(t: Tensor) -> Tensor:
            for arg in args:
                if not isinstance(arg, torch.dtype) or t.is_floating_point():
                    t = t.to(arg)
            return t

        return self._map(move, lambda m: m.to(*args))

    def reserve(self, steps: int, *, in_place: bool = False) -> Self:
        """Allocate capacity for `steps` more steps, so that shapes stay fixed while they are read.

        With `in_place`, later steps are written into this memory itself instead of a copy: only for its sole owner,
        such as `generate`.
        """
        return self._map(lambda t: t, lambda m: m.reserve(steps, in_place=in_place))

    def equals(self, other: Memory, tol: float = 0.0) -> bool:
        """Compare what is remembered, not how it is laid out: blank and surplus slots are ignored."""
        if type(self) is not type(other) or self._identity() != other._identity():
            return False
        mine, theirs = self.settled(), other.settled()
        return all(
            _parts_equal(a, b, axis, tol)
            for (_, a, axis), (_, b, _) in zip(mine._parts(), theirs._parts(), strict=True)
        )

    def settled(self) -> Self:
        """Return the same memory with zeros where nothing is remembered."""
        return self._map(lambda t: t, lambda m: m.settled())

    @classmethod
    def cat(cls, memories: Sequence[Self]) -> Self:
        """Concatenate batches; a growing axis is padded to the longest."""
        first, *rest = memories
        if any(type(m) is not type(first) or m._identity() != first._identity() for m in rest):
            raise ValueError(
                f"memories: got {sorted({type(m).__name__ for m in memories})}, expected one kind and size of memory"
            )
        joined = {name: _cat_parts([getattr(m, name) for m in memories], axis) for name, _, axis in first._parts()}
        sizes = {tuple(part.shape[axis] for _, part, axis in m._parts() if axis is not None) for m in memories}
        for f in first._statics():
            values = {getattr(m, f.name) for m in memories}
            is_shared = len(values) == 1 and (len(sizes) == 1 or "hint" not in f.metadata)
            joined[f.name] = values.pop() if is_shared else f.default
        return type(first)(**joined)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors().values())

    # ---- contents --------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Number of rows; 0 where nothing is remembered."""
        return next((len(t) for t in self.tensors().values()), 0)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by dotted name, in the order of the fields."""
        return {name: t for field_name, part, _ in self._parts() for name, t in _named(field_name, part)}

    def leaves(self) -> list[Tensor]:
        """Return all tensors, in the same order as by name and in a pytree."""
        return [t for _, part, _ in self._parts() for t in _tensors(part)]

    def within(self) -> Iterator[Memory]:
        """Return all memories inside this one, itself first."""
        yield self
        for _, part, _ in self._parts():
            yield from _memories(part)

    def _statics(self) -> list[Field[object]]:
        return _fields_of(self)[1]

    def _identity(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in _fields_of(self)[2]}

    def _parts(self) -> Iterator[tuple[str, Any, int | None]]:
        for name, axis in _fields_of(self)[0]:
            yield name, getattr(self, name), axis

    def _map(self, on_tensor: Callable[[Tensor], Tensor], on_memory: Callable[[Memory], Memory]) -> Self:
        return self._with(**{name: _apply(part, on_tensor, on_memory) for name, part, _ in self._parts()})

    def _with(self, **changes: object) -> Self:
        parts, statics, _ = _fields_of(self)
        same = [name for name, _ in parts] + [f.name for f in statics]
        return type(self)(**{name: getattr(self, name) for name in same if name not in changes}, **changes)

    def _index(self, rows: Rows) -> Tensor:
        device = next((t.device for t in self.tensors().values()), None)
        if isinstance(rows, slice):
            rows = torch.arange(self.batch_size)[rows]
        index = torch.as_tensor(rows, device=device)
        if index.dtype != torch.bool:
            return index.long()
        if len(index) != self.batch_size and self.tensors():
            raise ValueError(f"rows: got a mask of {len(index)}, expected {self.batch_size}, one for each row")
        return index.nonzero()[:, 0]


@dataclass(frozen=True, eq=False, kw_only=True)
class Fixed(Memory):
    """A memory that is written once, by an encoder, and then only read: beam search does not reorder it.

    >>> source = rc.CrossAttention(4, 2).remember(torch.ones(2, 3, 4))
    >>> isinstance(source, rc.Fixed), source.reorder([1, 0]) is source
    (True, True)
    """

    def reorder(self, rows: Rows) -> Self:
        """Return this memory unchanged: the beams of one source share it."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class Nothing(Memory):
    """The memory of a layer that remembers nothing.

    >>> y, memory = rc.Linear(4, 4)(torch.zeros(1, 3, 4))
    >>> memory, memory.nbytes
    (Nothing(), 0)
    """


@dataclass(frozen=True, eq=False, kw_only=True)
class Layers(Memory):
    """The memories of a stack, layer by layer.

    >>> stack = rc.Stack(rc.GRU(4, 4), rc.LSTM(4, 4))
    >>> memory = stack.initial_memory(batch_size=2)
    >>> [type(one).__name__ for one in memory.layers], memory.nbytes
    (['Hidden', 'HiddenCell'], 96)
    """

    layers: tuple[Memory, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Both(Memory):
    """The memories of two directions: as an argument the two initial states, as a result the two final ones.

    >>> layer = rc.Bidirectional(rc.GRU(4, 8), rc.GRU(4, 8))
    >>> memory = layer.initial_memory(2)
    >>> tuple(memory.forward.hidden.shape), tuple(memory.backward.hidden.shape)
    ((2, 8), (2, 8))
    """

    forward: Memory
    backward: Memory


# ---- fields ------------------------------------------------------------------------------------------

Fields: TypeAlias = tuple[list[tuple[str, int | None]], list[Field[object]], list[str]]
_FIELDS: dict[type[Memory], Fields] = {}  # cached: collecting a kind's fields takes longer than the work on them


def _fields_of(memory: Memory) -> Fields:
    """Return a kind's parts, each with its growing axis, its plain fields, and the names of those in its identity."""
    found = None if torch.compiler.is_compiling() else _FIELDS.get(type(memory))
    if found is None:
        parts = [(f.name, f.metadata.get("grows")) for f in fields(memory) if "static" not in f.metadata]
        statics = [f for f in fields(memory) if "static" in f.metadata]
        found = parts, statics, [f.name for f in statics if "hint" not in f.metadata]
        if not torch.compiler.is_compiling():
            _FIELDS[type(memory)] = found
    return found


def _apply(part: Part, on_tensor: Callable[[Tensor], Tensor], on_memory: Callable[[Memory], Memory]) -> Part:
    if isinstance(part, Tensor):
        return on_tensor(part)
    if isinstance(part, Memory):
        return on_memory(part)
    return tuple(_apply(p, on_tensor, on_memory) for p in part)


def _tensors(part: Part) -> Sequence[Tensor]:
    if isinstance(part, Tensor):
        return (part,)
    return part.leaves() if isinstance(part, Memory) else [t for p in part for t in _tensors(p)]


def _memories(part: Part) -> Iterator[Memory]:
    if isinstance(part, Memory):
        yield from part.within()
    elif isinstance(part, tuple):
        for p in part:
            yield from _memories(p)


def _named(name: str, part: Part) -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, Tensor):
        yield name, part
    elif isinstance(part, Memory):
        yield from ((f"{name}.{inner}", t) for inner, t in part.tensors().items())
    else:
        for i, p in enumerate(part):
            yield from _named(f"{name}.{i}", p)


def _cat_parts(parts: list[Any], axis: int | None) -> Any:
    if isinstance(parts[0], Tensor):
        if axis is not None:
            longest = max(p.shape[axis] for p in parts)
            parts = [pad_axis(p, axis, longest) for p in parts]
        return torch.cat(parts)
    if isinstance(parts[0], Memory):
        return type(parts[0]).cat(parts)
    return tuple(_cat_parts(list(column), axis) for column in zip(*parts, strict=True))


def _parts_equal(a: Part, b: Part, axis: int | None, tol: float) -> bool:
    if isinstance(a, Memory):
        return isinstance(b, Memory) and a.equals(b, tol)
    if isinstance(a, tuple):
        if not isinstance(b, tuple) or len(a) != len(b):
            return False
        return all(_parts_equal(x, y, axis, tol) for x, y in zip(a, b, strict=True))
    assert isinstance(b, Tensor)
    if axis is not None:
        longest = max(a.shape[axis], b.shape[axis])
        a = pad_axis(a, axis, longest)
        b = pad_axis(b, axis, longest)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return bool((a == b).all())
    return bool(((a == b) | ((a - b).abs() <= tol * (1 + b.abs()))).all())


def pad_axis(t: Tensor, axis: int, size: int) -> Tensor:
    """Pad one axis with zeros at its end."""
    missing = size - t.shape[axis]
    return F.pad(t, [0, 0] * (t.dim() - 1 - axis) + [0, missing]) if missing else t


# ---- pytrees: tensors are the leaves, plain values the context ------------------------------------


Context: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, object], ...]]  # names of the parts; plain values


def _flatten(memory: Memory) -> tuple[list[Part], Context]:
    parts = {name: part for name, part, _ in memory._parts()}
    return list(parts.values()), (tuple(parts), tuple((f.name, getattr(memory, f.name)) for f in memory._statics()))


def _unflatten(cls: type[Memory], parts: Iterable[Part], context: Context) -> Memory:
    names, statics = context
    return cls(**dict(zip(names, parts, strict=True)), **dict(statics))
