"""C code for operations on tensors with fixed addresses.

A tensor is an offset in a storage, with a shape and strides that never change: all of these are constants in the code,
and only the addresses of storages are arguments. Operations of one shape, as those of a model's equal layers, share one
function: what is compiled is then a layer, not a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from recollect.accel.cpu.decode.c_functions import PRELUDE
from recollect.accel.model_survey import storage_of

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int64_t",
    torch.int32: "int32_t",
    torch.bool: "uint8_t",
}
Axis: TypeAlias = tuple[int, tuple[int, ...]]  # a size, and each operand's stride


class Uncovered(Exception):
    """An operation, or a form of it, that has no code here."""


@dataclass(frozen=True)
class Share:
    """Work that can be divided, from 0 to `size`, in chunks of `grain`."""

    size: int
    grain: int
    is_worth_it: bool = True


class CSource:
    """The functions of a step, and the calls of them in order."""

    def __init__(self) -> None:
        self.held: dict[int, Tensor] = {}  # by storage, in the order of the table of pointers; kept alive here
        self.functions: dict[str, str] = {}  # names by text
        self.calls: list[str] = []

    def call(self, body: str, out: Tensor, *read: Tensor, share: Share | None = None) -> None:
        """Emit `body`, which writes `o` and reads a0, a1, …; work that is divided goes from `begin` to `end`."""
        if out.numel() == 0:
            return
        is_apart = all(storage_of(t) != storage_of(out) for t in read)
        kind = "restrict " if is_apart else ""
        names = [f"{type_of(out)} *{kind}o", *(f"const {type_of(t)} *{kind}a{i}" for i, t in enumerate(read))]
        for t in (out, *read):
            self.held.setdefault(storage_of(t), t.detach())
        numbers = {storage: i for i, storage in enumerate(self.held)}
        places = [f"({type_of(t)} *)p[{numbers[storage_of(t)]}] + {t.storage_offset()}" for t in (out, *read)]
        if share is None or not share.is_worth_it or share.size < 2:
            bounds = "" if share is None else f"const long begin = 0, end = {share.size}; (void)begin; (void)end;\n"
            name = self._named(f"({', '.join(names)}) {{\n{bounds}{body}\n}}")
            self.calls.append(f"{name}({', '.join(places)});")
        else:
            given = " ".join(f"{name} = (void *)p[{i}];" for i, name in enumerate(names))
            name = self._named(f"(char *const *p, long begin, long end) {{\n{given}\n{body}\n}}")
            table = ", ".join(f"(char *)({place})" for place in places)
            self.calls.append(f"share(team, {name}, (char *const[]){{{table}}}, {share.size}, {share.grain});")

    def _named(self, text: str) -> str:
        """Return the name of a function, the same for the same text."""
        return self.functions.setdefault(text, f"f{len(self.functions)}")

    def text(self) -> str:
        """Return the source: `step(p, team)` runs everything once, on storages that begin at p[0], p[1], …"""
        functions = [f"static __attribute__((noinline)) void {name}{text}" for text, name in self.functions.items()]
        step = "\n".join(["void step(void **p, team *team) {", *self.calls, "}"])
        return "\n".join([PRELUDE, *functions, step, ""])

    def pointers(self) -> list[int]:
        """Return the addresses of the storages."""
        return [t.untyped_storage().data_ptr() for t in self.held.values()]


def nest(axes: Sequence[Axis], inner: str, *, simd: bool = False) -> str:
    """Return code with loops i0, i1, … around it."""
    loops = [f"for (long i{d} = 0; i{d} < {size}; i{d}++)" for d, (size, _) in enumerate(axes)]
    if loops and simd:
        loops[-1] = f'_Pragma("omp simd")\n{loops[-1]}'
    return "\n".join([*loops, "{ " + inner + " }"])


def at(axes: Sequence[Axis], operand: int) -> str:
    """Return the offset in an operand, by the loops' indices."""
    terms = [f"i{d} * {strides[operand]}" for d, (_, strides) in enumerate(axes) if strides[operand]]
    return " + ".join(terms) or "0"


def merged(shape: Sequence[int], *strides: Sequence[int], by: int = 0) -> list[Axis]:
    """Return the axes to loop over, in the memory order of operand `by`, in as few loops as possible."""
    axes = [(size, tuple(steps)) for size, *steps in zip(shape, *strides, strict=True) if size != 1]
    axes.sort(key=lambda axis: -axis[1][by])
    found: list[Axis] = []
    for size, steps in axes:
        if found and all(outer == inner * size for outer, inner in zip(found[-1][1], steps, strict=True)):
            found[-1] = found[-1][0] * size, steps
        else:
            found.append((size, steps))
    return found


def elementwise(source: CSource, expression: str, out: Tensor, *read: Tensor, kind: str | None = None) -> None:
    """Emit an elementwise expression of x0, x1, …: the operands' elements, as `kind`."""
    axes = merged(out.shape, out.stride(), *(t.expand(out.shape).stride() for t in read))
    kind = kind or type_of(out)
    named = "".join(f"{kind} x{i} = a{i}[{at(axes, i + 1)}]; " for i in range(len(read)))
    is_apart = all(storage_of(t) != storage_of(out) for t in read)
    source.call(nest(axes, f"{named}o[{at(axes, 0)}] = {expression};", simd=is_apart), out, *read)


def constant(value: float | int | bool, kind: str) -> str:
    """Return a number as a literal of a type."""
    if isinstance(value, float):
        special = {float("inf"): "INFINITY", float("-inf"): "-INFINITY"}
        text = "NAN" if value != value else special.get(value, repr(value))
    else:
        text = f"{int(value)}LL"
    return f"(({kind}){text})"


def type_of(t: Tensor) -> str:
    """Return the C type of a tensor's elements."""
    if t.dtype not in TYPES:
        raise Uncovered(f"tensors of {t.dtype}")
    return TYPES[t.dtype]


def letter_of(t: Tensor) -> str:
    """Return the suffix of function names for a tensor's type."""
    if not t.is_floating_point():
        raise Uncovered(f"a function of {t.dtype}")
    return "f" if t.dtype == torch.float32 else "d"
