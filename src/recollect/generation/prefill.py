"""Reading for generation: prompts of different lengths into one memory, and that memory from then on.

A `Reader` owns its memory. Prompts are right padded, so that rows of different age live in one batch, and read in
chunks, of which only each row's last logits are kept. The caller's memory is never written into. Steps are read with
the model itself, or where `core.dispatch` has a form for it with a repeated step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from recollect.core.decode_hooks import DecodeStep, DecodeSteps
from recollect.core.dispatch import ask
from recollect.core.growing import Growing
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory, Rows
from recollect.core.record import is_readable
from recollect.core.validate import ContractError, check_ids

Model: TypeAlias = SequenceLayer[Any]
Prompts: TypeAlias = Sequence[Any] | Tensor  # of ids: lists, arrays or tensors

STRETCH = 512  # steps of a prompt read at once: bounds the logits (B, T, V)
ROOM = 48  # steps reserved at once, at least: most sentences are shorter
LONG_ROOM = 256  # where a step is compiled for each size


_READING: dict[nn.Module, tuple[int, list[nn.Module]]] = {}  # who reads now, and which modules were in training
_LOCK = Lock()


@contextmanager
def undisturbed(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Read without gradients and in eval mode, and leave the flag of each of a model's modules as it was.

    `modules` begin with the model. Where threads share it, the last to leave puts the flags back.
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


class Reader:
    """A model in the middle of reading: its memory, and its logits (B, V) for what comes next.

    `steps` is how many more ids each row may come to read after its prompt; `logits` are the model's last ones
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
        self.room = 0 if model.growth == "linear" else math.inf  # what keeps its size needs none
        self.device = home(model, memory)
        self._step: DecodeStep | None = None  # a repeated one, which then has the memory
        self._elsewhere: Callable[[], Memory] | None = None  # returns the memory, where somebody else has read on
        self.prompts = self._checked(prompts, begin, logits)
        lengths = [len(row) for row in self.prompts]
        check_table(self.modules, memory, lengths, steps)
        self._steps: DecodeSteps | None = ask(
            "decode_step", self.device.type, model, self.modules, steps, memory, patience
        )
        self.memory = self._own(memory)
        if self._steps is not None and model.growth == "saturates":  # in its full size from the beginning
            self.memory = self.memory.reserve(1)
        if lengths and set(lengths) == {1}:  # as any other step
            self.logits = torch.zeros(len(lengths), model.width_out, device=self.device)
            self.read(torch.cat(self.prompts))
        else:
            self.logits = self._read_prompts(torch.tensor(lengths, dtype=torch.long), logits)

    def _checked(self, prompts: Prompts, begin: int | None, logits: Tensor | None) -> list[Tensor]:
        """Return the prompts' ids, `begin` before them, or raise what is wrong with them."""
        if not self.model.streams:
            raise ContractError("model", "one that must see a whole sequence at once", "one that streams")
        rows = [_row(p, i, begin) for i, p in enumerate(_listed(prompts))]
        vocab_size = getattr(self.model, "vocab_size", None)
        for i, row in enumerate(rows):
            if vocab_size is not None:
                check_ids(row, vocab_size, f"prompts[{i}]")
            if logits is None and len(row) == 0:
                needed = "at least one, or a begin id, or a memory with the logits that go with it"
                raise ContractError(f"prompts[{i}]", "no ids", needed)
        return rows

    def read(self, ids: Tensor, valid: Tensor | None = None) -> None:
        """Read one more id (B,) in each row, or in the valid ones (B,)."""
        self._make_room()
        valid = None if valid is None or bool(valid.all()) else valid.to(self.device)
        step = self._step_for(valid is not None)
        if step is not None:
            before = self.logits if valid is None else self.logits.clone()  # a step writes them in the same place
            logits = step(ids, valid)
        else:
            before = self.logits
            mask = None if valid is None else valid[:, None]
            y, self.memory = self.model(ids[:, None].to(self.device), self.memory, valid=mask)
            logits = _wide(y[:, 0])
        self.room -= 1
        self.logits = logits if valid is None else torch.where(valid[:, None], logits, before)

    def read_chosen(self, ids: list[int]) -> None:
        """Read what was chosen in each row, nothing where it is −1: a row reads its last id, and nothing after it."""
        chosen = torch.tensor(ids)
        if min(ids) >= 0:
            self.read(chosen)
        else:
            self.read(chosen.clamp(min=0), chosen >= 0)

    def ready_step(self, is_next: bool) -> DecodeStep | None:
        """Return the repeated step in use; `is_next`: or the one for another id, with room for it."""
        if is_next:
            self._make_room()
        return self._step_for(False) if is_next or self._step is not None else None

    def _step_for(self, has_valid: bool) -> DecodeStep | None:
        """Return the repeated step to read with; None: the model reads."""
        if self._steps is None or is_readable():
            return None
        if self._step is None or self._step.has_valid != has_valid:
            memory = self.memory
            self._step = None
            step = self._steps.find(self, memory, len(self.logits), has_valid)
            self.memory = memory
            self._step = step
        return self._step

    @property
    def memory(self) -> Memory:
        """What is remembered now; the next step may write into it."""
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
        """Take over what somebody else has read; the memory is asked for when it is needed."""
        self._step = None
        self._elsewhere = memory
        self.logits = logits

    def select(self, rows: Rows) -> None:
        """Take rows of memory and logits, with repeats."""
        memory = self.memory.select(rows)
        self._step = None
        self.memory = memory
        self.logits = self.logits[rows]

    def reorder(self, rows: Tensor) -> None:
        """Move rows of the memory inside their sources; the logits are about to be replaced."""
        self.memory = self.memory.reorder(rows)

    def _make_room(self) -> None:
        """Have room for one more step, to be written in place: this memory is nobody else's."""
        if self.room == 0:
            memory = self.memory.settled()
            self._step = None
            self.room = _room(memory, ROOM if self._steps is None else LONG_ROOM)
            self.memory = memory.reserve(self.room, in_place=True)

    def _own(self, memory: Memory | None) -> Memory:
        """Return a memory that may be written into: a given one is copied where it grows."""
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
        logits = None if given is None else _wide(given.detach().to(self.device))
        for start in range(0, longest, STRETCH):
            part = slice(start, start + STRETCH)
            logits = self._read_stretch(ids[:, part], valid[:, part], logits)
        if logits is None:  # no rows
            logits = torch.zeros(0, self.model.width_out, device=self.device)
        elif logits.shape != (len(lengths), self.model.width_out):
            raise ContractError("logits", f"shape {tuple(logits.shape)}", f"{(len(lengths), self.model.width_out)}")
        return logits

    def _read_stretch(self, ids: Tensor, valid: Tensor, logits: Tensor | None) -> Tensor:
        """Return each row's last logits; whether rows are padded is seen on the CPU, without waiting for a GPU."""
        if bool(valid.all()):
            y, self.memory = self.model(ids, self.memory)
            return _wide(y[:, -1].clone())  # a part would keep all of them alive
        valid = valid.to(self.device)
        y, self.memory = self.model(ids, self.memory, valid=valid)
        count = valid.sum(1)  # (B,)
        last = (count - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[2])
        said = _wide(y.gather(1, last)[:, 0])  # (B, V)
        return said if logits is None else torch.where(count[:, None] > 0, said, logits)


def _room(memory: Memory, least: int) -> int:
    """Return the steps to make room for: up to 48, 96, 144, 208, 272, 400 … in all, so that like shapes come again.

    More is searched without effect, less is copied more often.
    """
    filled, size = max((part.slots for part in memory.within() if isinstance(part, Growing)), default=0), least
    while size <= filled:
        size += max(least, 1 << size.bit_length() - 2)
    return size - filled


def home(model: nn.Module, memory: Memory | None) -> torch.device:
    """Return the device where the model is, or failing that the memory."""
    held = chain(model.parameters(), model.buffers(), memory.tensors().values() if memory is not None else ())
    return next((t.device for t in held), torch.device("cpu"))


def check_table(modules: Iterable[nn.Module], memory: Memory | None, lengths: list[int], steps: int) -> None:
    """Refuse, before starting, what would run past a table of positions: any module's `max_length`."""
    named = (m for m in modules if "max_length" in vars(m) or hasattr(type(m), "max_length"))
    tables = [getattr(module, "max_length", None) for module in named]  # asking every module takes time
    limit = min((size for size in tables if isinstance(size, int)), default=None)
    if limit is None or not lengths:
        return
    before = _steps_read(memory, len(lengths))
    total = [b + length + steps for b, length in zip(before, lengths, strict=True)]
    worst = max(range(len(total)), key=total.__getitem__)
    if total[worst] > limit:
        past = f"{before[worst]} steps remembered, " if before[worst] else ""
        seen = f"{past}{lengths[worst]} ids and {steps} more to come"
        raise ContractError(f"prompts[{worst}]", seen, f"at most {limit} in all: the model has {limit} positions")


def _steps_read(memory: Memory | None, rows: int) -> list[int]:
    """Return how many steps each row has read, as far as the memory counts them."""
    named = {} if memory is None else memory.tensors()
    counts = [t for name, t in named.items() if name.split(".")[-1] == "length" and t.shape == (rows,)]
    return torch.stack(counts).amax(0).tolist() if counts else [0] * rows


def _wide(logits: Tensor) -> Tensor:
    """Return logits in which probabilities may be compared: half precisions become float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _listed(prompts: Any) -> list[Any]:
    if isinstance(prompts, (str, bytes)) or not hasattr(prompts, "__iter__"):
        raise ContractError("prompts", repr(prompts), "a list of prompts, each a list of ids")
    if isinstance(prompts, (Tensor, np.ndarray)) and prompts.ndim != 2:
        raise ContractError("prompts", f"shape {tuple(prompts.shape)}", "(B, T), or a list of prompts")
    return list(prompts)


def _row(prompt: Any, i: int, begin: int | None) -> Tensor:
    """Return a prompt's ids, `begin` before them."""
    if isinstance(prompt, (str, bytes)) or not hasattr(prompt, "__iter__"):
        raise ContractError(f"prompts[{i}]", repr(prompt), "a list of ids")
    ids = prompt.cpu().numpy() if isinstance(prompt, Tensor) else np.asarray(prompt)
    if ids.ndim != 1 or (ids.size and not np.issubdtype(ids.dtype, np.integer)):
        raise ContractError(f"prompts[{i}]", f"shape {ids.shape} of {ids.dtype}", "a list of ids")
    start = [] if begin is None else [begin]
    return torch.from_numpy(np.concatenate([np.asarray(start, dtype=np.int64), ids.astype(np.int64)]))
