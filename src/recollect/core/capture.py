"""Forward and backward pass as one CUDA graph, replayed without launch overhead.

A small model's update is thousands of short kernels, and launching each takes the CPU longer than running it takes the
GPU. Captured once and replayed, they follow each other at once. A graph is for one layout: the structure, shapes and
dtypes of its inputs. It reads buffers of its own, into which every call copies its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map

from recollect.core.memory import Memory

WARM_UP = 3  # runs before a capture, in which libraries choose kernels and allocate; one suffices after another capture

T = TypeVar("T")
Read: TypeAlias = Callable[[Any], tuple[Tensor, Memory | None]]  # inputs to a loss and the memory after it
Leaf: TypeAlias = tuple[torch.Size, torch.dtype] | None
Layout: TypeAlias = tuple[tuple[Leaf, ...], TreeSpec]


def warm_up(work: Callable[[], object], times: int = WARM_UP) -> None:
    """Run some work on a side stream, which a capture requires."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(beside)


def as_graph(work: Callable[[], T]) -> Callable[[], T]:
    """Capture work as a CUDA graph; each call of the result replays it and returns the same tensors, updated."""
    warm_up(work)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        given = work()

    def replay() -> T:
        graph.replay()
        return given

    return replay


class Captured:
    """The loss of inputs of one layout, its gradients in the parameters, and the memory after it.

    `inputs` is any pytree of tensors and Nones, on any device. `read` may not wait for the GPU, and returns a detached
    memory. `beside` is another graph of the same model, with which this one shares its memory pool and its gradients:
    they are never replayed at the same time.
    """

    pool: Any  # the handle of the memory pool, of a type private to torch
    gradients: list[Tensor | None]  # of the parameters; None: the loss does not depend on it

    def __init__(
        self, read: Read, inputs: Any, parameters: Iterable[nn.Parameter], beside: Captured | None = None
    ) -> None:
        self.read = read
        self.parameters = list(parameters)
        self.layout = layout_of(inputs)
        device = self.parameters[0].device

        def copy(leaf: Tensor | None) -> Tensor | None:
            return None if leaf is None else leaf.detach().to(device, copy=True, memory_format=torch.contiguous_format)

        self.inputs = tree_map(copy, inputs)
        self._clear_gradients()
        self._capture(beside)

    def _capture(self, beside: Captured | None) -> None:
        """Set `graph`, `loss`, `after` and `gradients`; tests without a GPU put a rehearsal in its place."""
        warm_up(self._update, WARM_UP if beside is None else 1)
        self._clear_gradients()
        self.graph = torch.cuda.CUDAGraph()
        self.pool = torch.cuda.graph_pool_handle() if beside is None else beside.pool
        with torch.cuda.graph(self.graph, pool=self.pool):
            self.loss, self.after = self._update()
            own = [p.grad for p in self.parameters]
            self.gradients = own if beside is None else _share(own, beside.gradients)

    def _clear_gradients(self) -> None:
        for p in self.parameters:
            p.grad = None

    def _update(self) -> tuple[Tensor, Memory | None]:
        loss, after = self.read(self.inputs)
        loss.backward()
        return loss.detach(), after

    def fits(self, inputs: object) -> bool:
        """Return whether inputs have the layout of the captured ones."""
        return layout_of(inputs) == self.layout

    def __call__(self, inputs: object) -> tuple[Tensor, Memory | None]:
        """Replay on new values; loss, gradients and memory are valid until the next replay."""
        assert self.fits(inputs), "a copy into another shape could broadcast without an error"
        for mine, given in zip(tree_leaves(self.inputs), tree_leaves(inputs), strict=True):
            if mine is not None:
                mine.copy_(given)
        for p, gradient in zip(self.parameters, self.gradients, strict=True):
            p.grad = gradient
        self.graph.replay()
        return self.loss, self.after


def layout_of(inputs: object) -> Layout:
    """Return the structure, shapes and dtypes of inputs, as a hashable key."""
    leaves, structure = tree_flatten(inputs)
    return tuple(None if leaf is None else (leaf.shape, leaf.dtype) for leaf in leaves), structure


def _share(own: list[Tensor | None], shared: list[Tensor | None]) -> list[Tensor | None]:
    """Copy gradients into another graph's and return those: one set for each graph would take a model's memory each."""
    both = [(to, g) for to, g in zip(shared, own, strict=True) if to is not None and g is not None]
    copy_together([to for to, _ in both], [g for _, g in both])
    return [g if to is None or g is None else to for to, g in zip(shared, own, strict=True)]


def copy_together(to: list[Tensor], new: list[Tensor]) -> None:
    """Copy with one launch for each dtype; one pair of unequal strides among them would make it one for each tensor."""
    alike: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for old, t in zip(to, new, strict=True):
        if old.stride() == t.stride():
            alike.setdefault(t.dtype, []).append((old, t))
        else:
            old.copy_(t)
    for pairs in alike.values():
        torch._foreach_copy_([old for old, _ in pairs], [t for _, t in pairs])
