"""Prefill and decode steps of generation: prompts of different lengths are read into one memory, then ids one by one.

A `PromptReader` owns its memory. Prompts are right padded, so that rows with different numbers of steps share one
batch, and read in chunks, of which only each row's last logits are kept. The caller's memory is never written into. Ids
are read with the model itself, or with a repeated step where `core.dispatch` has one for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from recollect.core.decode_hooks import DecodeStep, DecodeSteps
from recollect.core.dispatch import ask
from recollect.core.growing import Growing
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Fixed, Memory, Rows
from recollect.core.record import is_readable
from recollect.core.validate import ContractError, check_ids
from recollect.models.conditional import ConditionalModel

Model: TypeAlias = SequenceLayer[Any]
IdArray: TypeAlias = NDArray[np.integer[Any]]
Ids: TypeAlias = Sequence[int] | IdArray | Tensor  # (T,)
Prompts: TypeAlias = Sequence[Ids] | IdArray | Tensor  # (B, T), or rows of different lengths

CHUNK = 512  # steps of a prompt read at once: bounds the logits (B, T, V)
RESERVED = 48  # steps reserved at once, at least: most sentences are shorter
RESERVED_COMPILED = 256  # the same where a step is compiled for each size
RESERVED_TARGET = 64  # the same where the memory is a source's: targets are sentences

_READING: dict[
    nn.Module, tuple[int, list[nn.Module]]
] = {}  # readers of each model, and its modules that were in training mode
_LOCK = Lock()


@contextmanager
def undisturbed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Disable gradients and training mode, and restore the mode of each of a model's modules afterwards.

    `modules` begin with the model. Where threads share it, the last to leave restores the modes.
    """
    model = modules[0]
    with _LOCK:
        readers, paused = _READING.get(model, (0, []))
        training = [module for module in modules if module.training]
        for module in training:
            module.training = False
        _READING[model] = readers + 1, paused + training
    try:
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            readers, paused = _READING.pop(model)
            if readers > 1:
                _READING[model] = readers - 1, paused
            for module in paused if readers == 1 else ():
                module.training = True


class PromptReader:
    """A model with the memory of what it has read, and its logits (B, V) for the next id.

    `steps` is the largest number of ids that each row may read after its prompt; `logits` are the model's last ones
    where a prompt is empty and its row continues from `memory`. The first `patience` steps are read with the model
    itself. `modules` are the model's, where the caller has listed them already.
    """

    def __init__(
        self,
        model: Model,
        prompts: Prompts,
        steps: int,
        begin: int | None,
        memory: Memory | None,
        logits: Tensor | None,
        patience: int = 0,
        modules: Sequence[nn.Module] | None = None,
    ) -> None:
        self.model = model
        self.modules = list(model.modules()) if modules is None else modules
        self.slots_left = 0 if model.growth == "linear" else math.inf  # a memory of fixed size needs none
        self.device = home(model, memory)
        self._step: DecodeStep | None = None  # the repeated step in use, which then holds the memory
        self._elsewhere: Callable[[], Memory] | None = None  # returns the memory, where a decode loop has read further
        self.prompts = self._checked(prompts, begin, logits)
        lengths = [len(row) for row in self.prompts]
        check_table(self.modules, memory, lengths, steps)
        self._steps: DecodeSteps | None = ask(
            "decode_step", self.device.type, model, self.modules, steps, memory, patience
        )
        self.memory = self._own(memory)
        if self._steps is not None and model.growth == "saturates":  # allocated in full size from the start
            self.memory = self.memory.reserve(1)
        if lengths and set(lengths) == {1}:  # read as a decode step
            self.logits = torch.zeros(len(lengths), model.width_out, device=self.device)
            self.read(torch.cat(self.prompts))
        else:
            self.logits = self._read_prompts(torch.tensor(lengths, dtype=torch.long), logits)

    def _checked(self, prompts: object, begin: int | None, logits: Tensor | None) -> list[Tensor]:
        """Return the ids of the prompts, each preceded by `begin`; raise for prompts that cannot be read."""
        if not self.model.streams:
            raise ContractError("model", "one that must read a whole sequence at once", "one that streams")
        if isinstance(prompts, (str, bytes)) or not hasattr(prompts, "__iter__"):
            raise ContractError("prompts", repr(prompts), "a list of prompts, each a list of ids")
        if isinstance(prompts, (Tensor, np.ndarray)) and prompts.ndim != 2:
            raise ContractError("prompts", f"shape {tuple(prompts.shape)}", "(B, T), or a list of prompts")
        rows = [_row(p, i, begin) for i, p in enumerate(prompts)]
        vocab_size = getattr(self.model, "vocab_size", None)
        for i, row in enumerate(rows):
            if vocab_size is not None:
                check_ids(row, vocab_size, f"prompts[{i}]")
            if logits is None and len(row) == 0:
                needed = "at least one, or a begin id, or a memory with the logits that go with it"
                raise ContractError(f"prompts[{i}]", "no ids", needed)
        return rows

    def read(self, ids: Tensor, valid: Tensor | None = None) -> None:
        """Read one more id (B,) in each row, or only in the rows of `valid` (B,)."""
        self._reserve()
        valid = None if valid is None or bool(valid.all()) else valid.to(self.device)
        step = self._step_for(valid is not None)
        if step is not None:
            before = self.logits if valid is None else self.logits.clone()  # a repeated step overwrites its logits
            logits = step(ids, valid)
        else:
            before = self.logits
            mask = None if valid is None else valid[:, None]
            y, self.memory = self.model(ids[:, None].to(self.device), self.memory, valid=mask)
            logits = full_precision(y[:, 0])
        self.slots_left -= 1
        self.logits = logits if valid is None else torch.where(valid[:, None], logits, before)

    def read_chosen(self, ids: list[int]) -> None:
        """Read the id chosen in each row, nothing where it is −1: a row that has ended reads no further."""
        chosen = torch.tensor(ids)
        if min(ids) >= 0:
            self.read(chosen)
        else:
            self.read(chosen.clamp(min=0), chosen >= 0)

    def ready_step(self, is_next: bool) -> DecodeStep | None:
        """Return the repeated step in use, if any; with `is_next` one that has a slot reserved for another id."""
        if is_next:
            self._reserve()
        return self._step_for(False) if is_next or self._step is not None else None

    def _step_for(self, has_valid: bool) -> DecodeStep | None:
        """Return the repeated step to read with; None: read with the model itself."""
        if self._steps is None or is_readable():
            return None
        if self._step is None or (has_valid and not self._step.has_valid):
            memory = self.memory
            self._step = None
            step = self._steps.find(self, memory, len(self.logits), has_valid)
            self.memory = memory
            self._step = step
        return self._step

    @property
    def memory(self) -> Memory:
        """The memory after all ids read; the next step may write into it."""
        if self._elsewhere is not None:
            self.memory = self._elsewhere()
        return self._memory if self._step is None else self._step.memory()

    @memory.setter
    def memory(self, memory: Memory) -> None:
        self._memory = memory
        self._elsewhere = None
        if self._step is not None:
            self._step.load(memory)

    def resume_from(self, memory: Callable[[], Memory], logits: Tensor) -> None:
        """Continue after the ids that a decode loop has read; `memory` is called when its result is needed."""
        self._step = None
        self._elsewhere = memory
        self.logits = logits

    def select(self, rows: Rows) -> None:
        """Select rows of the memory and the logits; a row may be repeated."""
        memory = self.memory.select(rows)
        self._step = None
        self.memory = memory
        self.logits = self.logits[rows]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the rows of the memory within their sources; the logits are left: the next `read` replaces them."""
        self.memory = self.memory.reorder(rows)

    def _reserve(self) -> None:
        """Reserve slots where none is left; they are written in place, as this reader owns its memory."""
        if self.slots_left == 0:
            memory = self.memory.settled()
            self._step = None
            least = RESERVED
            if self._steps is not None:
                has_source = any(isinstance(part, Fixed) for part in memory.within())
                least = RESERVED_TARGET if has_source else RESERVED_COMPILED
            self.slots_left = _steps_to_reserve(memory, least)
            self.memory = memory.reserve(self.slots_left, in_place=True)

    def _own(self, memory: Memory | None) -> Memory:
        """Return a memory that this reader may write into: a given one is copied where it grows."""
        if memory is not None:
            return memory.settled()
        nothing = torch.zeros(len(self.prompts), 0, dtype=torch.long, device=self.device)
        return self.model.initial_memory(len(self.prompts), like=nothing)

    def _read_prompts(self, lengths: Tensor, given: Tensor | None) -> Tensor:
        longest = int(lengths.max()) if len(lengths) else 0
        ids = torch.zeros(len(lengths), longest, dtype=torch.long)
        for row, prompt in zip(ids, self.prompts, strict=True):
            row[: len(prompt)] = prompt
        valid = torch.arange(longest) < lengths[:, None]  # (B, T)
        ids = ids.to(self.device)
        logits = None if given is None else full_precision(given.detach().to(self.device))
        for start in range(0, longest, CHUNK):
            part = slice(start, start + CHUNK)
            logits = self._read_chunk(ids[:, part], valid[:, part], logits)
        if logits is None:  # no rows
            logits = torch.zeros(0, self.model.width_out, device=self.device)
        elif logits.shape != (len(lengths), self.model.width_out):
            raise ContractError("logits", f"shape {tuple(logits.shape)}", f"{(len(lengths), self.model.width_out)}")
        return logits

    def _read_chunk(self, ids: Tensor, valid: Tensor, logits: Tensor | None) -> Tensor:
        """Return each row's last logits; `valid` is on the CPU, so that looking for padding needs no device sync."""
        if bool(valid.all()):
            y, self.memory = self.model(ids, self.memory)
            return full_precision(y[:, -1].clone())  # a view would keep all of y alive
        valid = valid.to(self.device)
        y, self.memory = self.model(ids, self.memory, valid=valid)
        count = valid.sum(1)  # (B,)
        last = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[2])
        found = full_precision(y.gather(1, last)[:, 0])  # (B, V)
        return found if logits is None else torch.where(count[:, None] > 0, found, logits)


def _steps_to_reserve(memory: Memory, least: int) -> int:
    """Return how many slots to add: up to 48, 96, 144, 208, 272, 400 … in all, so that shapes recur.

    Attention reads every reserved slot, and every reservation copies the memory: the sizes balance the two.
    """
    filled = max((part.slots for part in memory.within() if isinstance(part, Growing)), default=0)
    size = least
    while size <= filled:
        size += max(least, 1 << size.bit_length() - 2)
    return size - filled


def home(model: nn.Module, memory: Memory | None) -> torch.device:
    """Return the device of the model, or of the memory where the model has no tensors."""
    held = chain(model.parameters(), model.buffers(), memory.tensors().values() if memory is not None else ())
    return next((t.device for t in held), torch.device("cpu"))


def check_table(modules: Sequence[nn.Module], memory: Memory | None, lengths: list[int], steps: int) -> None:
    """Raise, before anything is read, if rows would exceed a table of positions: any module's `max_length`.

    `modules` begin with the model. Of one with a source the decoder reads on; an encoder's table is its source's.
    """
    if isinstance(modules[0], ConditionalModel):
        modules = list(modules[0].decoder.modules())
    named = (m for m in modules if "max_length" in vars(m) or hasattr(type(m), "max_length"))
    tables = [getattr(module, "max_length", None) for module in named]  # getattr on every module is slow
    limit = min((size for size in tables if isinstance(size, int)), default=None)
    if limit is None or not lengths:
        return
    tensors = {} if memory is None else memory.tensors()
    counted = [t for name, t in tensors.items() if name.split(".")[-1] == "length" and t.shape == (len(lengths),)]
    before = torch.stack(counted).amax(0).tolist() if counted else [0] * len(lengths)  # steps, where they are counted
    total = [b + length + steps for b, length in zip(before, lengths, strict=True)]
    worst = max(range(len(total)), key=total.__getitem__)
    if total[worst] > limit:
        past = f"{before[worst]} steps remembered, " if before[worst] else ""
        got = f"{past}{lengths[worst]} ids and {steps} more to come"
        raise ContractError(f"prompts[{worst}]", got, f"at most {limit} in all: the model has {limit} positions")


def full_precision(logits: Tensor) -> Tensor:
    """Return float16 and bfloat16 logits as float32, in which probabilities are computed and compared."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _row(prompt: object, i: int, begin: int | None) -> Tensor:
    """Return the ids of a prompt, preceded by `begin`."""
    if isinstance(prompt, (str, bytes)) or not hasattr(prompt, "__iter__"):
        raise ContractError(f"prompts[{i}]", repr(prompt), "a list of ids")
    ids = prompt.cpu().numpy() if isinstance(prompt, Tensor) else np.asarray(prompt)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise ContractError(f"prompts[{i}]", f"shape {ids.shape} of {ids.dtype}", "a list of ids")
    start = [] if begin is None else [begin]
    return torch.from_numpy(np.concatenate([np.asarray(start, dtype=np.int64), ids.astype(np.int64)]))
