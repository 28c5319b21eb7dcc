"""The nine laws of the contract. Each is a function that raises `LawBroken`, or returns."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from recollect.core.growing import Growing
from recollect.core.layer import scan
from recollect.core.memory import Memory
from recollect.core.reservation import copied
from recollect.core.serialize import load_memory, load_weights, save_memory, save_weights
from recollect.laws.trial import (
    Layer,
    Read,
    Trial,
    from_initial,
    gradients,
    in_chunks,
    in_readable_form,
    in_training,
    noticed_draws,
    poisoned,
    whole,
    without_memory,
)

MOST_AT_ONCE = 64  # steps of an example in which x is changed from each step on, in a row each
MANY_ROWS = 17  # kernels of blocks of rows take another path beyond 16


def causality(layer: Layer, trial: Trial) -> None:
    """Changing x at t changes nothing before t."""
    if not layer.streams:
        return
    example = trial.example
    memory = example.start(layer)
    y = layer(example.x, memory)[0]
    last = example.x.shape[1] - 1
    for t in range(1, last + 1) if last < 8 else (1, *example.cuts, last):
        changed = _changed_from(example.x, t)
        trial.same(f"outputs before step {t}, x changed from there on,", layer(changed, memory)[0][:, :t], y[:, :t])
    if 8 <= last < MOST_AT_ONCE:
        _at_every_step(layer, trial, memory, y)


def _changed_from(x: Tensor, t: int) -> Tensor:
    later = x[:, t:].flip(0, 1)
    return torch.cat([x[:, :t], later + 1 if later.is_floating_point() else later], dim=1)


def _at_every_step(layer: Layer, trial: Trial, memory: Memory, y: Tensor) -> None:
    """Change x from every step on, each in a row of one batch; where rows disturb each other, `rows` tells."""
    x = trial.example.x[:1]
    steps = x.shape[1]
    many = memory.select([0] * steps)
    unchanged = layer(x.repeat(steps, *[1] * (x.dim() - 1)), many)[0]
    if not bool(((unchanged - y[:1]).abs() <= trial.tol * (1 + y[:1].abs())).all()):
        return
    found = layer(torch.cat([_changed_from(x, t) for t in range(steps)]), many)[0]
    for t in range(1, steps):
        trial.same(f"outputs before step {t}, x changed from there on,", found[t : t + 1, :t], y[:1, :t])


def split(layer: Layer, trial: Trial) -> None:
    """Reading in chunks of any length, 0 and 1 included, gives the same outputs and final memory."""
    if not layer.streams:
        return
    example = trial.example
    memory = example.start(layer)
    trial.same_memory("memories before and after reading no steps", layer(example.x[:, :0], memory)[1], memory)
    y, after = layer(example.x, memory, valid=example.mask)
    variants = {"chunks": in_chunks(example.cuts)}
    if example.thorough:
        variants["single steps"] = lambda layer, x, memory, valid: scan(layer, x, memory, valid=valid)
    for how, read in variants.items():
        y_split, after_split = read(layer, example.x, memory, example.mask)
        trial.same(f"outputs read in {how} and at once", y_split, y)
        trial.same_memory(f"memories read in {how} and at once", after_split, after)


def padding(layer: Layer, trial: Trial) -> None:
    """NaN after a row's end changes neither outputs nor memory; outputs there are zero; rows may be empty.

    A mask that is True everywhere changes nothing.
    """
    example = trial.example
    memory = example.start(layer)
    valid = example.valid
    y, after = layer(poisoned(example.x, valid), memory, valid=valid)
    if example.mask is None:
        y_bare, after_bare = layer(example.x, memory)
        trial.same("outputs with a mask that is True everywhere and without one", y, y_bare)
        trial.same_memory("memories with a mask that is True everywhere and without one", after, after_bare)
    if bool((y.masked_fill(valid.unsqueeze(-1), 0) != 0).any()):
        trial.fail("outputs at invalid steps are not zero")
    for b, n in enumerate(example.lengths):
        row = example.row(b)
        y_alone, after_alone = layer(row.x, memory.select([b]))
        trial.same(f"outputs of row {b} padded and alone", y[b : b + 1, :n], y_alone)
        trial.same_memory(f"memories of row {b} padded and alone", after.select([b]), after_alone)


def rows(layer: Layer, trial: Trial) -> None:
    """`select` commutes with reading, `cat` of `select`s is the identity, `reorder` is `select` inside a source."""
    example = trial.example
    memory = example.start(layer)
    mask = example.mask
    y, after = layer(example.x, memory, valid=mask)
    size = len(example.x)
    for count in (size, MANY_ROWS):
        chosen = [(3 * i + 1) % size for i in range(count)] + [0] if size else []
        index = torch.tensor(chosen, dtype=torch.long, device=example.x.device)
        own = None if mask is None else mask[index]
        y_chosen, after_chosen = layer(example.x[index], memory.select(chosen), valid=own)
        trial.same("outputs of selected rows", y_chosen, y[index])
        trial.same_memory("memories of selected rows", after_chosen, after.select(chosen))
    if size:
        alone = [after.select([b]) for b in range(size)]
        trial.same_memory("memory and cat of its rows", type(after).cat(alone), after)
        _cat_of_ages(layer, trial, memory)
        _reorder(layer, trial, memory)


def _cat_of_ages(layer: Layer, trial: Trial, memory: Memory) -> None:
    """Rows of different lengths that were read alone continue in one batch as they would alone."""
    example = trial.example
    if not layer.streams:
        return
    alone = [layer(example.row(b).x, memory.select([b]))[1] for b in range(len(example.x))]
    y, after = layer(example.x, type(memory).cat(alone))
    for b, own in enumerate(alone):
        y_own, after_own = layer(example.x[b : b + 1], own)
        trial.same(f"outputs of row {b} joined with rows of other lengths and alone", y[b : b + 1], y_own)
        trial.same_memory(f"memories of row {b} joined and alone", after.select([b]), after_own)


def _reorder(layer: Layer, trial: Trial, memory: Memory) -> None:
    example = trial.example
    one_source = memory.select([0] * len(example.x))
    after = layer(example.x, one_source, valid=example.mask)[1]
    backwards = list(range(len(example.x)))[::-1]
    trial.same_memory("reordered and selected memories", after.reorder(backwards), after.select(backwards))


def purity(layer: Layer, trial: Trial) -> None:
    """The memory and inputs passed in are unchanged and the module keeps nothing: reading again gives the same.

    The returned memory shares no storage with the inputs, which their owner may write to.
    """
    example = trial.example
    memory = example.start(layer)
    mask = example.mask
    x = example.x.clone()
    before = {name: t.clone() for name, t in memory.tensors().items()}
    y, after = layer(x, memory, valid=mask)
    kept = copied(after)
    for name, t in memory.tensors().items():
        if not torch.equal(t, before[name]):
            trial.fail(f"reading changed the memory passed in: {name}")
    if not torch.equal(x, example.x):
        trial.fail("reading changed the inputs passed in")
    for name, t in after.tensors().items():
        if t.numel() and t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            trial.fail(f"the memory returned is a view of the inputs: {name}; clone it")
    layer(x, after, valid=mask)  # another call in between
    trial.same_memory("a returned memory, before and after reading on from it,", after, kept)
    y_again, after_again = layer(x, memory, valid=mask)
    trial.same("outputs read twice from one memory", y_again, y)
    trial.same_memory("memories read twice from one memory", after_again, kept)
    with in_training(layer) as buffers:
        layer(x, memory, valid=mask)
        changed = [name for name, b in layer.named_buffers() if not torch.equal(b, buffers[name])]
    if changed:
        trial.fail(f"reading in training mode changed the module's buffer {changed[0]}")


def gradients_law(layer: Layer, trial: Trial) -> None:
    """Split and parallel gradients are equal, finite with NaN in the padding, and cut exactly at `detach`."""
    example = trial.example
    if not example.thorough:
        return
    memory = example.start(layer)
    valid = example.valid
    mask = example.mask
    _cut_by_detach(trial, memory)  # first: all below relies on it
    clean = gradients(layer, whole, example.x, memory, mask)
    if not clean:
        return  # a counting model
    poison = gradients(layer, whole, poisoned(example.x, valid), memory, valid)
    for name, g in poison.items():
        if not bool(g.isfinite().all()):
            trial.fail(f"gradients of {name} are not finite with NaN in the padding")
    trial.same_gradients("NaN and zero in the padding", poison, clean)
    if layer.streams:
        chunks = gradients(layer, in_chunks(example.cuts), example.x, memory, mask)
        trial.same_gradients("chunks and at once", chunks, clean)
    attached = layer(example.x.clone().requires_grad_(example.x.is_floating_point()), memory, valid=valid)[1]
    _cut_by_detach(trial, attached)


def _cut_by_detach(trial: Trial, attached: Memory) -> None:
    cut = attached.detach()
    if any(t.requires_grad for t in cut.tensors().values()):
        trial.fail("detach leaves part of the memory attached to the graph")
    trial.same_memory("memories before and after detach", cut, attached)


def bytes_law(layer: Layer, trial: Trial) -> None:
    """`nbytes` is the size of the tensors' storage, and follows the layer's stated growth."""
    example = trial.example
    sizes = []
    memory = example.start(layer)
    first = memory.nbytes
    x = torch.cat([example.past, example.x], dim=1)
    if x.shape[1] == 0 or len(x) == 0:
        return
    if example.memory is None:
        _held(trial, layer.initial_memory(len(x), like=x))
    limit = max(_limits(memory), default=0)
    for _ in range(3):
        for _ in range(max(1, -(-limit // x.shape[1]))):
            memory = layer(x, memory)[1]
        _held(trial, memory)
        sizes.append(memory.nbytes)
    steps = [b - a for a, b in pairwise(sizes)]
    grown = {
        "none": sizes[-1] == 0,
        "constant": sizes == [first] * 3 and first > 0,
        "saturates": steps == [0, 0] and first <= sizes[0],
        "linear": steps[0] == steps[1] > 0,
    }
    if not grown[layer.growth]:
        trial.fail(f"bytes {sizes} after equal numbers of steps do not follow the stated growth {layer.growth!r}")


def _held(trial: Trial, memory: Memory) -> None:
    held = sum(t.untyped_storage().nbytes() for t in memory.tensors().values())
    if memory.nbytes != held:
        trial.fail(f"nbytes is {memory.nbytes}, the tensors hold {held}; a view or an expanded tensor must be cloned")


def _limits(memory: Memory) -> list[int]:
    own = [memory.limit] if isinstance(memory, Growing) and memory.limit is not None else []
    parts = [p for _, part, _ in memory._parts() for p in (part if isinstance(part, tuple) else (part,))]
    return own + [limit for p in parts if isinstance(p, Memory) for limit in _limits(p)]


def reference(layer: Layer, trial: Trial, naive: Read = in_readable_form) -> None:
    """The layer equals a readable reference implementation: outputs, memory and gradients.

    Neither grad mode nor training mode nor omitting the initial memory changes the results.
    """
    example = trial.example
    memory = example.start(layer)
    mask = example.mask
    y, after = layer(example.x, memory, valid=mask)
    _same_reading(trial, "of the layer and the reference", naive(layer, example.x, memory, mask), (y, after))
    with torch.set_grad_enabled(not torch.is_grad_enabled()):
        other = layer(example.x, memory, valid=mask)
    _same_reading(trial, "with and without gradients", other, (y, after))
    with in_training(layer), noticed_draws(example.x.device) as draws:
        other = layer(example.x, memory, valid=mask)
    if not draws.any:  # one with dropout differs by design
        _same_reading(trial, "in training mode and in eval mode", other, (y, after))
    begins = example.memory is None and example.past.shape[1] == 0  # the memory is the initial one
    if begins:
        _same_reading(trial, "without a memory and from the initial one", layer(example.x, valid=mask), (y, after))
    if not example.thorough:
        return
    ours = gradients(layer, whole, example.x, memory, mask)
    trial.same_gradients("layer and reference", ours, gradients(layer, naive, example.x, memory, mask))
    if begins:
        bare, begun = (gradients(layer, read, example.x, memory, mask) for read in (without_memory, from_initial))
        trial.same_gradients("without a memory and from the initial one", bare, begun)


def _same_reading(trial: Trial, how: str, a: tuple[Tensor, Memory], b: tuple[Tensor, Memory]) -> None:
    trial.same(f"outputs {how}", a[0], b[0])
    trial.same_memory(f"memories {how}", a[1], b[1])


def keep(layer: Layer, trial: Trial) -> None:
    """Saved and loaded memory and weights are the same, and reading continues from them with the same results."""
    example = trial.example
    memory = example.start(layer)
    mask = example.mask
    y, after = layer(example.x, memory, valid=mask)
    with tempfile.TemporaryDirectory() as folder:
        save_memory(memory, Path(folder) / "memory")
        save_weights(layer, Path(folder) / "weights")
        loaded = load_memory(Path(folder) / "memory", example.x.device)
        twin = copy.deepcopy(layer)
        with torch.no_grad():
            for p in twin.parameters():
                p.zero_()
        load_weights(twin, Path(folder) / "weights")
    replace(trial, tol=0.0).same_memory("saved and loaded memories", loaded, memory)
    y_loaded, after_loaded = twin(example.x, loaded, valid=mask)
    trial.same("outputs read from saved and loaded", y_loaded, y)
    trial.same_memory("memories read from saved and loaded", after_loaded, after)


# In the order in which they are checked, so that the nearest law is named: a layer that keeps state breaks most of
# them, one that reads later steps breaks split too, one that mixes rows breaks padding too.
LAWS: dict[str, Callable[[Layer, Trial], None]] = {
    "purity": purity,
    "causality": causality,
    "split": split,
    "rows": rows,
    "padding": padding,
    "gradients": gradients_law,
    "bytes": bytes_law,
    "reference": reference,
    "keep": keep,
}
