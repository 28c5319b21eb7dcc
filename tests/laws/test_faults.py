"""Planted faults: for every law, bugs that it must catch, by name and with a small example.

Most are bugs that other projects had; the docstrings name them. Each fault is a sound layer with one thing wrong,
and the whole check, all nine laws in their order, must name the law that forbids it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pytest
import torch
from sound_layers import Begun, FirstOnly, Gathered, Looking, MiniBatches, Plain, Seen, Shift, linear
from torch import Tensor
from torch.nn import functional as F

from recollect.core.compose import Bidirectional
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Both, static
from recollect.core.validate import fill_invalid
from recollect.laws.check import LAWS, LawBroken, check_layer
from recollect.layers.pointwise import Linear
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Hidden

FAULTS: list[tuple[str, int, Any]] = []  # law, most steps of the smallest example, factory


def breaks(law: str, *, steps: int = 2) -> Any:
    """Register a fault under the law that must catch it, within an example of so many steps."""

    def register(factory: Any) -> Any:
        FAULTS.append((law, steps, factory))
        return factory

    return register


# ---- split -------------------------------------------------------------------------------------------


@breaks("split")
class DropsStateOfChunks(Plain):
    """Bug: the state is used only when one step arrives, `seq_len == 1` (transformers, nine models)."""

    def read(self, x, memory, valid):
        return super().read(x, memory if x.shape[1] <= 1 else self.initial_memory(len(x), like=x), valid)


@breaks("split")
class MissesPredecessor(Shift):
    """Bug: the first step of a chunk has no predecessor, though one is remembered (nanochat)."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return (y if x.shape[1] == 1 else x + 2 * F.pad(x, (0, 0, 1, 0))[:, :-1]), after


@breaks("split")
class OnlySingleStepsContinue(Plain):
    """Bug: only reading one step moves the state (mamba, xlstm's `step`)."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y, after if x.shape[1] == 1 else memory


@breaks("split")
class DropsPartialMiniBatch(MiniBatches):
    """Bug: what an unfinished mini-batch gathered is not remembered (ttt-lm-pytorch, TTTCache.update)."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y, replace(after, begun=torch.zeros_like(after.begun)) if x.shape[1] > 1 else after


@breaks("split", steps=3)
class WindowAssumesOneStep(Looking):
    """Bug: what has left the window is masked for the last new step only, right for T = 1 (mlx-lm)."""

    def __init__(self):
        super().__init__(limit=2)

    def allowed(self, x, offsets):
        step = torch.arange(x.shape[1])[:, None]
        return super().allowed(x, offsets) | ((step < x.shape[1] - 1) & (offsets[:, None] <= step))


# ---- padding -----------------------------------------------------------------------------------------


@breaks("padding", steps=1)
class BiasDrivesState(Plain):
    """Bug: the mask reaches the input only, so the bias drives the state through padding (keras)."""

    def read(self, x, memory, valid):
        return super().read(x, memory, None)


@breaks("padding", steps=1)
class MasksByProduct(Linear):
    """Bug: padding is masked by a product, and NaN times zero is NaN."""

    def __init__(self):
        super().__init__(2, 2, dtype=torch.float64)

    def forward(self, x, memory=None, *, valid=None):
        mask = torch.ones_like(x[..., :1]) if valid is None else valid.unsqueeze(-1)
        y, memory = super().forward(x * mask, memory)
        return y * mask, memory


@breaks("padding", steps=1)
class BackwardStartsInPadding(Bidirectional):
    """Bug: the backward half turns the padded row around and so begins in its padding (keras)."""

    def __init__(self):
        super().__init__(Plain(), Plain())

    def read(self, x, memory, valid):
        ahead, after = self.forwards(x, memory.forward, valid=valid)
        back, before = self.backwards(x.flip(1), memory.backward)
        return torch.cat([ahead, back.flip(1)], dim=-1), Both(forward=after, backward=before)


@breaks("padding")
class RepeatsOutputs(Plain):
    """Bug: the last output is repeated at padding instead of zero (keras, tensorflow)."""

    def forward(self, x, memory=None, *, valid=None):
        memory = self.initial_memory(len(x), like=x) if memory is None else memory
        return self.read(fill_invalid(x, valid), memory, valid)


@breaks("padding", steps=1)
class KeepsPaddingAsSteps(Looking):
    """Bug: padding is appended to the memory as if it had been read (mlx-lm)."""

    def read(self, x, memory, valid):
        return super().read(x, memory, None)


@breaks("padding", steps=1)
class MarksPadding(FirstOnly):
    """Bug: an empty row counts as begun."""

    def read(self, x, memory, valid):
        y, _ = super().read(x, memory, valid)
        return y, Begun(begun=memory.begun | (x.shape[1] > 0))


# ---- rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class StaysPut(Hidden):
    def reorder(self, rows):
        return self


@breaks("rows", steps=3)
class SkipsReorder(Plain):
    """Bug: beam search's reorder silently does nothing (transformers: Mamba, XLNet, RWKV, Reformer)."""

    kind = StaysPut


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeMajor(Hidden):
    def select(self, rows):
        return replace(self, hidden=self.hidden.index_select(1, self._index(rows)))


@breaks("rows", steps=3)
class BatchOnAxisOne(Plain):
    """Bug: the state is (1, B, H), whatever the inputs are (pytorch); `select` knows, `cat` does not."""

    def initial_memory(self, batch_size, like=None):
        return TimeMajor(hidden=super().initial_memory(batch_size, like).hidden[None])

    def read(self, x, memory, valid):
        y, after = super().read(x, Hidden(hidden=memory.hidden[0]), valid)
        return y, TimeMajor(hidden=after.hidden[None])

    def _check_memory(self, memory, x):
        pass


@dataclass(frozen=True, eq=False, kw_only=True)
class Sorted(Hidden):
    def select(self, rows):
        return super().select(self._index(rows).sort().values)


@breaks("rows", steps=3)
class SelectsInOrder(Plain):
    """Bug: chosen rows come back in the batch's order, as from a mask, not in the order asked for."""

    kind = Sorted


@dataclass(frozen=True, eq=False, kw_only=True)
class ForgetsAges(Seen):
    @classmethod
    def cat(cls, memories):
        return replace(super().cat(memories), even=True)


@breaks("rows", steps=5)
class CatForgetsAges(Looking):
    """Bug: joined rows of different age are taken for equally old, so padding is read as steps (mlx-lm)."""

    kind = ForgetsAges


# ---- purity ------------------------------------------------------------------------------------------


@breaks("purity", steps=1)
class WritesIntoRoom(Looking):
    """Bug: new steps are written into the memory passed in, which others may go on from (mlx-lm)."""

    growth = "constant"

    def initial_memory(self, batch_size, like=None):
        return super().initial_memory(batch_size, like).reserve(300, in_place=True)


@breaks("purity", steps=3)
class BufferInModule(Plain):
    """Bug: chunks leave their state in a buffer that the module set up for two rows (torchtune)."""

    def __init__(self):
        super().__init__()
        self.buffer = torch.zeros(2, 2, dtype=torch.float64)

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        if len(x) != 2 or x.shape[1] < 2:
            return y, after
        return y, Hidden(hidden=self.buffer.copy_(after.hidden.detach()))


@breaks("purity", steps=1)
class ClampsInPlace(Shift):
    """Bug: an in-place activation works on the caller's inputs (`inplace=True`)."""

    def read(self, x, memory, valid):
        return super().read(x.clamp_(-0.1, 0.1), memory, valid)


# ---- causality ---------------------------------------------------------------------------------------
# Reading step by step cannot see what comes later, so a layer that looks ahead breaks split too; causality is tried
# first, so that it is called by its name.


def quiet(rows: int = 3, steps: int = 35) -> Tensor:
    """Inputs between -1 and 1."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.rand(rows, steps, 2, generator=generator, dtype=torch.float64) - 1


class GuardsPeak(Shift):
    """Bug: a chunk louder than 1 is scaled down as a whole by its peak."""

    def read(self, x, memory, valid):
        peak = x.abs().amax((1, 2), keepdim=True) if x.numel() else torch.ones(())
        return super().read(x / peak.clamp(min=1), memory, valid)


class QuantisesByRange(Shift):
    """Bug: values beyond the calibrated range choose the step width of all the chunk (dynamic quantisation)."""

    def read(self, x, memory, valid):
        scale = torch.ones(()) if x.numel() == 0 else x.abs().amax((1, 2), keepdim=True).clamp(min=1)
        return super().read((x / scale * 127).round() * scale / 127, memory, valid)


@breaks("causality")
class FullView(Looking):
    """Bug: every step looks at the whole chunk, and the layer still says that it streams."""

    def allowed(self, x, offsets):
        return super().allowed(x, offsets) | (offsets[:, None] < x.shape[1])


@breaks("causality")
class NormalisesOverTime(Shift):
    """Bug: a norm takes its mean over time instead of features."""

    def read(self, x, memory, valid):
        return (
            super().read(x - x.mean(1, keepdim=True), memory, valid) if x.shape[1] else super().read(x, memory, valid)
        )


# ---- gradients ---------------------------------------------------------------------------------------


@breaks("gradients", steps=1)
class MasksAfterNaN(Linear):
    """Bug: padding is masked behind the map only; the outputs are clean, backward is zero times NaN."""

    def __init__(self):
        super().__init__(2, 2, dtype=torch.float64)

    def forward(self, x, memory=None, *, valid=None):
        y, memory = super().forward(x, memory)
        return fill_invalid(y, valid), memory


@dataclass(frozen=True, eq=False, kw_only=True)
class Attached(Hidden):
    def detach(self):
        return self


@breaks("gradients")
class DetachDoesNothing(Plain):
    """Bug: a memory of one's own forgets to pass `detach` on, and back-propagation is never truncated."""

    kind = Attached


@dataclass(frozen=True, eq=False, kw_only=True)
class HalfDetached(Gathered):
    def detach(self):
        return replace(self, full=self.full.detach())


@breaks("gradients")
class DetachForgetsField(MiniBatches):
    """Bug: truncation cuts one part of the memory and leaves the other attached."""

    def initial_memory(self, batch_size, like=None):
        return HalfDetached(**vars(super().initial_memory(batch_size, like)))

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y, HalfDetached(**vars(after))


@breaks("gradients")
class CutsAtBorders(Plain):
    """Bug: the layer itself detaches what it is given, so gradients end wherever the caller cut the sequence."""

    def read(self, x, memory, valid):
        return super().read(x, memory.detach(), valid)


# ---- bytes -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Formula(Hidden):
    @property
    def nbytes(self):
        return 4 * self.hidden.numel()


@breaks("bytes", steps=1)
class BytesByFormula(Plain):
    """Bug: bytes come from a formula that knows one dtype (fla)."""

    kind = Formula


@breaks("bytes", steps=1)
class KeepsLargerBuffer(Shift):
    """Bug: the kept step is a view that keeps the whole chunk's storage alive."""

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y, replace(after, last=torch.cat([memory.last, after.last], dim=1)[:, 1:])


@breaks("bytes", steps=1)
class WindowNotEvicted(Looking):
    """Bug: only the last two steps are read but all of them are kept (mlx-lm)."""

    def __init__(self):
        super().__init__()
        self.growth = "saturates"

    def allowed(self, x, offsets):
        return super().allowed(x, offsets) & (offsets[:, None] > torch.arange(x.shape[1])[:, None] - 2)


# ---- reference ---------------------------------------------------------------------------------------


@breaks("reference", steps=1)
class SwappedGates(LSTM):
    """Bug: the fast form takes the input gate's weights for the forget gate's and the other way round."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(2, 2, dtype=torch.float64)

    def _weights(self):
        return [torch.cat([w[2:4], w[:2], w[4:]]) for w in super()._weights()]


@breaks("reference", steps=1)
class KernelOfAnotherForm(GRU):
    """Bug: Cho's form, reset="before", is handed to a kernel that only knows the other."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(2, 2, reset="before", dtype=torch.float64)

    def fused(self, x, memory, valid):
        self.reset = "after"
        try:
            return super().fused(x, memory, valid)
        finally:
            self.reset = "before"


@breaks("reference", steps=1)
class FastWithoutGradient(Linear):
    """Bug: the fast form's outputs are right and its gradient does not reach the weights."""

    def __init__(self):
        super().__init__(2, 2, dtype=torch.float64)

    def fast(self, x, memory, valid):
        return F.linear(x, self.linear.weight.detach(), self.linear.bias), memory


class TopLeftMask(Looking):
    """Bug: the fast form's causal mask counts from the top left, wrong behind a cache (x-transformers)."""

    def fast(self, x, memory, valid):
        lists, _, after = memory.extend({"steps": x}, valid)
        steps = lists["steps"]
        return self.look(x, steps, torch.ones(x.shape[1], steps.shape[1]).tril().bool()), after


# ---- keep --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class HalfOnDisk(Hidden):
    def tensors(self):
        return {name: t.half() for name, t in super().tensors().items()}


@breaks("keep")
class SavesHalfPrecision(Plain):
    """Bug: the state is written to disk in half precision."""

    kind = HalfOnDisk


@breaks("keep", steps=1)
class SavesWeightsInHalfPrecision(Plain):
    """Bug: the weights are written to disk in half precision."""

    def state_dict(self, *args, **kwargs):
        return {name: t.half() for name, t in super().state_dict(*args, **kwargs).items()}


class Form(str, Enum):
    LINEAR = "linear"
    TANH = "tanh"


@dataclass(frozen=True, eq=False, kw_only=True)
class WithForm(Hidden):
    form: Any = static(Form.LINEAR)


@breaks("keep", steps=1)
class ComparesByIdentity(Plain):
    """Bug: a plain value of the memory is asked for with `is`; loaded, it is equal but another object."""

    kind = WithForm

    def read(self, x, memory, valid):
        y, after = super().read(x, memory, valid)
        return y if memory.form is Form.LINEAR else y.tanh(), after


# ---- the tests ---------------------------------------------------------------------------------------


def broken(layer: SequenceLayer[Any], **options: Any) -> LawBroken:
    """Run the check and give the law that was found broken."""
    with pytest.raises(LawBroken) as caught:
        check_layer(layer, **options)
    return caught.value


@pytest.mark.parametrize(("law", "steps", "fault"), [pytest.param(*f, id=f"{f[0]}-{f[2].__name__}") for f in FAULTS])
def test_the_whole_check_names_the_law(law, steps, fault):
    error = broken(fault())
    assert error.law == law, str(error)
    assert str(error).startswith(f"{law}: ")
    assert f"smallest example: {error.example}" in str(error)
    assert error.example.x.shape[1] <= steps, f"not a small example: {error.example}"
    assert len(error.example.x) <= 3


@pytest.mark.parametrize("fault", [GuardsPeak, QuantisesByRange])
def test_looking_ahead_at_unusual_inputs_breaks_causality(fault):
    error = broken(fault(), inputs=quiet())
    assert error.law == "causality"
    assert error.example.x.shape[1] <= 3


@pytest.mark.parametrize("fault", [FullView, NormalisesOverTime])
def test_looking_ahead_breaks_split_too(fault):
    assert "outputs before step 1" in str(broken(fault()))
    assert broken(fault(), laws=["split"]).law == "split"


def test_top_left_mask_breaks_split_and_reference():
    """All reading goes through the fast form, so split sees it too and comes first."""
    assert broken(TopLeftMask()).law == "split"
    error = broken(TopLeftMask(), laws=["reference"])
    assert error.law == "reference"
    assert error.example.past.shape[1] > 0


def test_every_law_has_two_planted_faults():
    named = [law for law, _, _ in FAULTS]
    assert {law: named.count(law) >= 2 for law in LAWS} == dict.fromkeys(LAWS, True)


def sound_layers() -> list[SequenceLayer[Any]]:
    layers = [Plain(), Shift(), MiniBatches(), Looking(), Looking(limit=2), FirstOnly(), linear()]
    layers += [Bidirectional(Plain(), Plain()), LSTM(2, 2), GRU(2, 2, reset="before")]
    return [layer.double() for layer in layers]


@pytest.mark.parametrize("layer", sound_layers(), ids=lambda layer: type(layer).__name__)
def test_the_sound_layers_keep_every_law(layer):
    check_layer(layer, inputs=quiet() if isinstance(layer, Shift) else None)


def test_the_message_reads_well():
    error = broken(BiasDrivesState())
    assert str(error) == (
        "padding: memories of row 0 padded and alone differ in hidden; "
        "smallest example: B=1, T=1, lengths [0], after 0 earlier steps"
    )
    assert isinstance(error, AssertionError)


def test_gradients_that_are_not_finite_are_called_so():
    assert "gradients of parameter linear.weight are not finite with NaN in the padding" in str(broken(MasksAfterNaN()))


@pytest.mark.parametrize("training", [True, False])
def test_the_check_leaves_the_layer_in_its_mode(training):
    layer = BiasDrivesState().train(training)
    broken(layer)
    assert layer.training is training
    check_layer(layer, laws=["split"])
    assert layer.training is training


def test_the_check_leaves_given_inputs_alone():
    inputs = quiet()
    broken(ClampsInPlace(), inputs=inputs)
    assert torch.equal(inputs, quiet())


def test_a_naive_version_may_be_given():
    def other(layer, x, memory, valid):
        y, after = layer(x, memory, valid=valid)
        return y + 1e-6, after

    check_layer(Shift(), laws=["reference"])
    assert broken(Shift(), naive=other).law == "reference"
    check_layer(Shift(), naive=other, tol=1e-5)


def test_given_memory_is_where_reading_starts():
    seen = []

    class Watching(Shift):
        def read(self, x, memory, valid):
            seen.append(memory.length.min().item() if len(memory.length) else 5)
            return super().read(x, memory, valid)

    start = Shift()(quiet(3, 5))[1]
    check_layer(Watching(), inputs=quiet(), memory=start)
    assert min(seen) == 5


def test_a_chosen_law_is_the_only_one_tried():
    check_layer(BiasDrivesState(), laws=[law for law in LAWS if law != "padding"])
