"""Faults that hide: beyond a chunk, in one mode, without a memory. The whole check must find them and name the law."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import torch
from sound_layers import Looking, Plain, Shift
from torch import nn

from recollect.core.compose import Stack
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Nothing
from recollect.core.validate import ContractError, fill_invalid
from recollect.laws.check import LawBroken, check_layer
from recollect.laws.examples import chunk_sizes, long_examples
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.ttt.layer import TTTLinear

FAULTS: list[tuple[str, str, type]] = []  # law, words of the message, layer


def breaks(law: str, words: str):
    """Register a fault under the law that must catch it and what the message says."""

    def register(layer: type) -> type:
        FAULTS.append((law, words, layer))
        return layer

    return register


# ---- length ------------------------------------------------------------------------------------------


@breaks("split", "outputs read in")
class WrongFromStep34(Shift):
    """Bug: the fast form is right for 33 steps."""

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return torch.cat([y[:, :33], 2 * y[:, 33:]], dim=1), after


@breaks("split", "outputs read in chunks and at once differ first at (0, 64, 0)")
class ForgetsBetweenChunks(Plain):
    """Bug: the fast form reads chunks of 64 and begins each anew (fla)."""

    def fast(self, x, memory, valid):
        outputs = [x[:, :0]]
        for start in range(0, max(x.shape[1], 1), 64):
            part = slice(start, start + 64)
            begin = memory if start == 0 else self.initial_memory(len(x), like=x)
            y, after = self.read(x[:, part], begin, None if valid is None else valid[:, part])
            outputs.append(y)
        return torch.cat(outputs, dim=1), after


@breaks("split", "outputs read in")
class WrongInThirdChunk(Shift):
    """Bug: the fast form reads chunks of 200, which it declares, and is wrong behind the second border."""

    chunk_sizes = (200,)

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return torch.cat([y[:, :400], y[:, 400:] + 1], dim=1), after


@breaks("reference", "of the layer and the reference")
class WrongAtLatePositions(Shift):
    """Bug: the fast form's table of positions ends at 40 and its last entry is taken from there on."""

    def fast(self, x, memory, valid):
        late = (memory.length[:, None] + torch.arange(x.shape[1]) >= 40)[..., None]
        y, after = self.read(x, memory, valid)
        return torch.where(late, y + 1, y), after


@breaks("gradients", "chunks and at once")
class CutsGradientsOfLongReadings(Plain):
    """Bug: a reading of more than 64 steps back-propagates through its last 64 only."""

    def read(self, x, memory, valid):
        if x.shape[1] <= 64:
            return super().read(x, memory, valid)
        first, middle = self.read(x[:, :-64], memory, None if valid is None else valid[:, :-64])
        last, after = super().read(x[:, -64:], middle.detach(), None if valid is None else valid[:, -64:])
        return torch.cat([first, last], dim=1), after


@breaks("causality", "outputs before step")
class LeaksInLongReadings(Looking):
    """Bug: a block of the mask is left out where there are more than 40 steps: all of it is seen."""

    def allowed(self, x, offsets):
        allowed = super().allowed(x, offsets)
        return allowed | (offsets[:, None] < x.shape[1]) if x.shape[1] > 40 else allowed


# ---- state -------------------------------------------------------------------------------------------


@breaks("purity", "outputs read twice from one memory")
class CountsInModule(Shift):
    """Bug: the module counts the steps it has read, instead of the memory."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def read(self, x, memory, valid):
        self.steps += x.shape[1]
        y, after = super().read(x, memory, valid)
        return y + self.steps, after


@breaks("purity", "reading changed the memory passed in: hidden")
class WritesIntoGivenMemory(Plain):
    """Bug: the new state is copied into the tensor of the old one."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        with torch.no_grad():
            memory.hidden.data.copy_(after.hidden)
        return y, replace(after, hidden=memory.hidden + 0)


@breaks("purity", "the memory returned is a view of the inputs: last")
class RemembersViewOfInputs(Shift):
    """Bug: the memory is a part of the inputs, which the caller may write to."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        is_view = valid is None and x.shape[1] > 0
        return y, replace(after, last=x[:, -1:]) if is_view else after


@breaks("purity", "reading in training mode changed the module's buffer norm.running_mean")
class BatchNormed(SequenceLayer[Nothing]):
    """Bug: batch norm keeps running statistics in the module and in training mixes rows and steps."""

    width = width_out = 2
    growth = "none"

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2, dtype=torch.float64)

    def initial_memory(self, batch_size, like=None):
        return Nothing()

    def read(self, x, memory, valid):
        return (self.norm(x.flatten(0, 1)).reshape(x.shape) if x.numel() > 2 else x), memory


# ---- rows --------------------------------------------------------------------------------------------


@breaks("rows", "outputs of selected rows")
class CentersOverBatch(Shift):
    """Bug: the mean over the batch is subtracted at every step."""

    def read(self, x, memory, valid):
        return super().read(x - x.mean(0, keepdim=True) if len(x) else x, memory, valid)


# ---- ways to call ------------------------------------------------------------------------------------


@breaks("reference", "without a memory and from the initial one")
class OtherBeginning(Plain):
    """Bug: the form that begins by itself begins with ones."""

    def forward(self, x, memory=None, *, valid=None):
        if memory is None:
            memory = Hidden(hidden=torch.ones(len(x), 2, dtype=torch.float64))
        return super().forward(x, memory, valid=valid)


@breaks("reference", "in training mode and in eval mode")
class OtherInTraining(Shift):
    """Bug: a form for training has another scale."""

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return (1.5 * y if self.training else y), after


@breaks("reference", "with and without gradients")
class OtherWithoutGradients(Shift):
    """Bug: the kernel that is chosen without gradients is wrong beyond its first chunk of 64."""

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return (y if torch.is_grad_enabled() else torch.cat([y[:, :64], -y[:, 64:]], dim=1)), after


@breaks("padding", "outputs with a mask that is True everywhere and without one")
class OtherWithMask(Shift):
    """Bug: the form for masks scales by the share of valid steps, off by one."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return (y if valid is None else fill_invalid(0.5 * y, valid)), after


@breaks("split", "memories before and after reading no steps differ in last, length")
class NoStepsForget(Shift):
    """Bug: a reading of no steps returns a fresh memory."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return (y, after) if x.shape[1] else (y, self.initial_memory(len(x), like=x))


# ---- form, rows and single steps ---------------------------------------------------------------------


@breaks("contract", "outputs have shape (0, 2, 3), expected (0, 2, 2) of width_out 2")
class WiderThanStated(Shift):
    """Bug: one more feature than `width_out` says."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return torch.cat([y, y[..., :1]], dim=-1), after


@breaks("contract", "outputs are torch.float32, expected torch.float64")
class LessPrecise(Shift):
    """Bug: the result of a kernel in single precision is not converted back."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y.float(), after


@breaks("contract", "the memory returned is Nothing, expected Recent")
class ForgetsItsMemory(Shift):
    """Bug: another type of memory is returned than was read from."""

    def read(self, x, memory, valid):
        return super().read(x, memory, valid)[0], Nothing()


@breaks("contract", "reading fails with RuntimeError: no steps; smallest example: B=1, T=0")
class NeedsAStep(Shift):
    """Bug: a stack of no outputs."""

    def read(self, x, memory, valid):
        if not x.shape[1]:
            raise RuntimeError("no steps")
        return super().read(x, memory, valid)


@breaks("rows", "outputs of selected rows")
class WrongFromRow16(Shift):
    """Bug: the second block of 16 rows is scaled."""

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return torch.cat([y[:16], 2 * y[16:]]), after


@breaks("causality", "outputs before step 21")
class LooksAheadOnce(Plain):
    """Bug: of 33 steps a single one sees the next."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        seen = torch.zeros_like(y)
        seen[:, 20:21] = 0.1 * x[:, 21:22] if x.shape[1] > 21 else 0
        return fill_invalid(y + seen, valid), after


@breaks("split", "outputs read in chunks and at once differ first at (0, 401, 0)")
class WrongWithinThirdChunk(Shift):
    """Bug: the third of its declared chunks is right for one step only."""

    chunk_sizes = (200,)

    def fast(self, x, memory, valid):
        y, after = self.read(x, memory, valid)
        return torch.cat([y[:, :401], 0 * y[:, 401:]], dim=1), after


@breaks("bytes", "a view or an expanded tensor must be cloned")
class ExpandedStart(Shift):
    """Bug: the initial memory of all rows is one expanded tensor."""

    def initial_memory(self, batch_size, like=None):
        memory = super().initial_memory(batch_size, like)
        return replace(memory, last=memory.last[:1].clone().expand_as(memory.last))


@pytest.mark.parametrize(("law", "words", "fault"), [pytest.param(*f, id=f"{f[0]}-{f[2].__name__}") for f in FAULTS])
def test_the_whole_check_names_the_law(law, words, fault):
    with pytest.raises(LawBroken) as caught:
        check_layer(fault())
    assert caught.value.law == law, str(caught.value)
    assert words in str(caught.value)


# ---- the lengths -------------------------------------------------------------------------------------


def test_chunk_sizes_are_declared_or_found():
    assert chunk_sizes(Shift()) == set()
    assert chunk_sizes(WrongInThirdChunk()) == {200}
    assert chunk_sizes(LinearAttention(8, 2)) == {64}
    assert chunk_sizes(TTTLinear(8, 2, mini_batch=12)) == {12}
    assert chunk_sizes(TTTLinear(8, 2, mini_batch=None)) == {64}
    assert chunk_sizes(Stack(SelfAttention(8, 2, window=9), SelfAttention(8, 2), LinearAttention(8, 2))) == {9, 64}


def test_given_inputs_are_read_in_their_full_length_once():
    lengths = []

    class Watching(Shift):
        def read(self, x, memory, valid):
            lengths.append(x.shape[1])
            return super().read(x, memory, valid)

    check_layer(Watching(), torch.randn(3, 500, 2, dtype=torch.float64), laws=["split"])
    assert max(lengths) == 500
    assert {65, 130} <= set(lengths)
    lengths.clear()
    check_layer(Watching(), torch.randn(3, 20, 2, dtype=torch.float64), laws=["split"])
    assert max(lengths) == 18  # after two steps of past


def test_a_table_of_positions_limits_the_lengths():
    class Bounded(Shift):
        def __init__(self):
            super().__init__()
            self.max_length = 100

    x = torch.randn(3, 90, 2, dtype=torch.float64)
    draw = Random(0)
    assert [example.x.shape[1] for example in long_examples(Bounded(), x, None, draw)] == [65, 90]


def test_training_mode_leaves_buffers_generators_and_mode_alone():
    class Restless(Shift):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def read(self, x, memory, valid):
            if self.training:
                self.calls += torch.rand(())
            return super().read(x, memory, valid)

    layer, before = Restless().eval(), torch.get_rng_state()
    check_layer(layer, laws=["reference"])  # draws in training mode, as dropout does: no comparison there
    assert torch.equal(torch.get_rng_state(), before)
    assert layer.calls == 0
    assert not layer.training


@pytest.mark.parametrize("given", [nn.LSTM(4, 4), SelfAttention])
def test_what_is_no_layer_is_refused(given):
    with pytest.raises(ContractError, match="expected a layer with weights, of a class that inherits SequenceLayer"):
        check_layer(given)
