"""RNN, GRU and LSTM against `torch.nn`: outputs, states and gradients, stacked, both ways, ragged, there and back."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from recollect.core.record import readable
from recollect.core.validate import ContractError
from recollect.layers.pointwise import Dropout, LayerNorm
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.recurrent.torch_bridge import RecurrentStack, cells

WIDTH, HIDDEN, BATCH, STEPS = 3, 4, 4, 6
KINDS = {"RNN tanh": (RNN, {"nonlinearity": "tanh"}), "RNN relu": (RNN, {"nonlinearity": "relu"})}
KINDS |= {"GRU": (GRU, {}), "LSTM": (LSTM, {})}
SHAPES = list(product([1, 2, 3], [False, True], [True, False]))  # layers, both directions, bias

every_kind = pytest.mark.parametrize("kind", KINDS)
every_shape = pytest.mark.parametrize(("depth", "both", "bias"), SHAPES)
both_forms = pytest.mark.parametrize("form", [nullcontext, readable], ids=["fast", "readable"])


def torch_module(kind, depth, both, bias, **options):
    torch.manual_seed(0)
    ours, extra = KINDS[kind]
    shape = {"num_layers": depth, "bidirectional": both, "bias": bias, "batch_first": True, "dtype": torch.float64}
    return getattr(nn, ours.__name__)(WIDTH, HIDDEN, **shape, **extra, **options)


def from_torch(kind, module):
    return KINDS[kind][0].from_torch(module)


def leaf(*shape, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def initial_state(module):
    """Give torch's h, or (h, c), as leaves."""
    size = module.num_layers * (2 if module.bidirectional else 1)
    h, c = leaf(size, BATCH, HIDDEN, seed=2), leaf(size, BATCH, HIDDEN, seed=3)
    return (h, c) if isinstance(module, nn.LSTM) else h


def tensors(state):
    return list(state) if isinstance(state, tuple) else [state]


def their_parameters(module):
    ways = ["", "_reverse"] if module.bidirectional else [""]
    names = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if module.bias else [])]
    return [getattr(module, f"{n}_l{i}{way}") for i in range(module.num_layers) for way in ways for n in names]


def our_parameters(layer):
    return [p for cell in cells(layer) for p in cell.parameters()]


def gradients(y, state, leaves):
    """Differentiate a fixed uneven sum of outputs and final state."""
    results = [y, *tensors(state)]
    total = sum((t * torch.cos(torch.arange(t.numel(), dtype=t.dtype)).reshape(t.shape)).sum() for t in results)
    return torch.autograd.grad(total, leaves)


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@every_kind
@every_shape
@pytest.mark.parametrize("given", [False, True], ids=["from zero", "from a state"])
@both_forms
def test_equals_torch(kind, depth, both, bias, given, form):
    module = torch_module(kind, depth, both, bias)
    layer = from_torch(kind, module)
    x, state = leaf(BATCH, STEPS, WIDTH), initial_state(module) if given else None
    y_torch, after_torch = module(x, state)
    with form():
        y, memory = layer(x, None if state is None else layer.memory_from_torch(state))
    after = layer.memory_to_torch(memory)
    assert_same([y, *tensors(after)], [y_torch, *tensors(after_torch)])
    starts = tensors(state) if given else []
    ours = gradients(y, after, [x, *starts, *our_parameters(layer)])
    assert_same(ours, gradients(y_torch, after_torch, [x, *starts, *their_parameters(module)]))


def packed(module, x, lengths, state):
    ragged = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    y, after = module(ragged, state)
    return pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0], after


def mask(lengths, steps=STEPS):
    return torch.arange(steps) < torch.tensor(lengths)[:, None]


@every_kind
@every_shape
@both_forms
def test_ragged_rows_equal_packed_ones(kind, depth, both, bias, form):
    """The states, c too, are those of each row's own last step."""
    module, lengths = torch_module(kind, depth, both, bias), [2, 6, 1, 5]
    layer = from_torch(kind, module)
    x, state = leaf(BATCH, STEPS, WIDTH), initial_state(module)
    y_torch, after_torch = packed(module, x, lengths, state)
    with form():
        y, memory = layer(x, layer.memory_from_torch(state), valid=mask(lengths))
    after = layer.memory_to_torch(memory)
    assert_same([y, *tensors(after)], [y_torch, *tensors(after_torch)])
    ours = gradients(y, after, [x, *tensors(state), *our_parameters(layer)])
    assert_same(ours, gradients(y_torch, after_torch, [x, *tensors(state), *their_parameters(module)]))


@every_kind
@pytest.mark.parametrize("both", [False, True])
@both_forms
def test_ragged_rows_with_empty_ones_equal_rows_alone(kind, both, form):
    """torch refuses to pack empty rows; here they keep the state they had."""
    module, lengths = torch_module(kind, 2, both, bias=True), [0, 6, 0, 3]
    layer = from_torch(kind, module)
    x, state = leaf(BATCH, STEPS, WIDTH), initial_state(module)
    with form():
        y, memory = layer(x, layer.memory_from_torch(state), valid=mask(lengths))
    after = tensors(layer.memory_to_torch(memory))
    for b, n in enumerate(lengths):
        alone = [t[:, b : b + 1].contiguous() for t in tensors(state)]
        assert not y[b, n:].any()
        if n == 0:
            assert_same([t[:, b : b + 1] for t in after], alone)
        else:
            y_alone, after_alone = module(x[b : b + 1, :n], tuple(alone) if len(alone) == 2 else alone[0])
            assert_same([y[b : b + 1, :n]], [y_alone])
            assert_same([t[:, b : b + 1] for t in after], tensors(after_alone))


# ---- there and back ------------------------------------------------------------------------------------

SETTINGS = ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "training"]


@every_kind
@every_shape
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_from_torch_to_torch_gives_the_same_module(kind, depth, both, bias, training):
    dropout = 0.25 if depth > 1 else 0.0
    module = torch_module(kind, depth, both, bias, dropout=dropout).train(training)
    back = from_torch(kind, module).to_torch()
    assert type(back) is type(module)
    assert [getattr(back, name) for name in SETTINGS] == [getattr(module, name) for name in SETTINGS]
    assert getattr(back, "nonlinearity", None) == getattr(module, "nonlinearity", None)
    theirs, ours = module.state_dict(), back.state_dict()
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@every_kind
@every_shape
def test_states_from_torch_to_torch_are_the_same(kind, depth, both, bias):
    module = torch_module(kind, depth, both, bias)
    layer, state = from_torch(kind, module), initial_state(module)
    back = layer.memory_to_torch(layer.memory_from_torch(state))
    assert isinstance(back, tuple) == isinstance(state, tuple)
    assert all(torch.equal(a, b) for a, b in zip(tensors(back), tensors(state), strict=True))


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_copies_share_no_storage(kind):
    module = torch_module(kind, 1, False, True)
    layer, state = from_torch(kind, module), initial_state(module)
    with torch.no_grad():
        for t in [*layer.parameters(), *layer.memory_from_torch(state).tensors().values()]:
            t.zero_()
    assert all(t.any() for t in [*module.parameters(), *tensors(state)])


@pytest.mark.parametrize("batch_first", [True, False])
def test_time_major_modules_are_read_batch_first(batch_first):
    torch.manual_seed(0)
    module = nn.GRU(WIDTH, HIDDEN, batch_first=batch_first, dtype=torch.float64)
    x = leaf(BATCH, STEPS, WIDTH)
    y = GRU.from_torch(module)(x)[0]
    y_torch = module(x if batch_first else x.transpose(0, 1))[0]
    assert_same([y], [y_torch if batch_first else y_torch.transpose(0, 1)])


def test_dropout_stands_between_the_layers():
    layer = from_torch("LSTM", torch_module("LSTM", 3, True, True, dropout=0.25))
    assert [type(inner).__name__ for inner in layer] == [
        "Bidirectional", "Dropout", "Bidirectional", "Dropout", "Bidirectional",
    ]  # fmt: skip
    assert [inner.rate for inner in layer if isinstance(inner, Dropout)] == [0.25, 0.25]
    x = leaf(BATCH, STEPS, WIDTH)
    torch.manual_seed(0)
    assert not torch.equal(layer.train()(x)[0], layer(x)[0])
    assert torch.equal(layer.eval()(x)[0], layer(x)[0])


def test_built_here_and_read_there():
    torch.manual_seed(0)
    layer = GRU.stack(WIDTH, HIDDEN, 2, bidirectional=True, dtype=torch.float64)
    x = leaf(BATCH, STEPS, WIDTH)
    assert_same([layer(x)[0]], [layer.to_torch()(x)[0]])


# ---- what is refused -------------------------------------------------------------------------------------


def test_projections_are_refused():
    with pytest.raises(ContractError, match="module: got proj_size 2, expected 0"):
        LSTM.from_torch(nn.LSTM(WIDTH, HIDDEN, proj_size=2))


@pytest.mark.parametrize(("ours", "theirs"), [(GRU, nn.LSTM), (LSTM, nn.RNN), (RNN, nn.GRU), (RNN, nn.RNNCell)])
def test_modules_of_another_class_are_refused(ours, theirs):
    with pytest.raises(
        ContractError, match=f"module: got torch.nn.{theirs.__name__}, expected torch.nn.{ours.__name__}"
    ):
        ours.from_torch(theirs(WIDTH, HIDDEN))


def test_chos_form_is_refused_by_torch():
    for layer in (GRU(WIDTH, HIDDEN, reset="before"), GRU.stack(WIDTH, HIDDEN, 2, reset="before")):
        with pytest.raises(ContractError, match="layer: got GRU with reset='before', expected reset='after'"):
            layer.to_torch()


@pytest.mark.parametrize(
    "layers",
    [
        (RNN(WIDTH, HIDDEN), RNN(HIDDEN, HIDDEN, nonlinearity="relu")),
        (GRU(WIDTH, HIDDEN), GRU(HIDDEN, HIDDEN, reset="before")),
        (GRU(WIDTH, HIDDEN), LayerNorm(HIDDEN), GRU(HIDDEN, HIDDEN)),
        (RNN(WIDTH, HIDDEN), GRU(HIDDEN, HIDDEN)),
        (RNN(WIDTH, HIDDEN), RNN(HIDDEN, 5)),
        (GRU(WIDTH, HIDDEN), GRU(HIDDEN, HIDDEN, bias=False)),
    ],
    ids=["nonlinearities", "resets", "a norm between", "kinds", "sizes", "biases"],
)
def test_stacks_that_torch_cannot_build_are_refused(layers):
    with pytest.raises(ContractError, match="layer: got"):
        RecurrentStack(*layers).to_torch()


def test_states_of_another_shape_are_refused():
    layer = from_torch("LSTM", torch_module("LSTM", 2, True, True))
    h = torch.zeros(3, BATCH, HIDDEN, dtype=torch.float64)
    with pytest.raises(ContractError, match="state: got 3 layers and directions, expected 4"):
        layer.memory_from_torch((h, h))
    with pytest.raises(ContractError, match=r"state: got h alone, expected \(h, c\) for an LSTM"):
        layer.memory_from_torch(torch.zeros(4, BATCH, HIDDEN, dtype=torch.float64))
    with pytest.raises(ContractError, match=r"state: got \(h, c\)"):
        GRU(WIDTH, HIDDEN).memory_from_torch((h[:1], h[:1]))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: RNN(0, 4), "width, hidden: got 0, 4, expected at least 1"),
        (lambda: LSTM(3, 0), "width, hidden: got 3, 0, expected at least 1"),
        (lambda: RNN(3, 4, nonlinearity="gelu"), "nonlinearity: got 'gelu', expected 'tanh' or 'relu'"),
        (lambda: GRU(3, 4, reset="never"), "reset: got 'never', expected 'before' or 'after'"),
        (lambda: GRU.stack(3, 4, 0), "layers: got 0, expected at least 1"),
        (lambda: GRU.stack(3, 4, 2, dropout=1.0), "rate: got 1.0, expected 0 ≤ rate < 1"),
    ],
)
def test_settings_out_of_range_are_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()


# ---- what torch does not have ----------------------------------------------------------------------------


def chos_equations(layer, x, h):
    """Cho et al. 2014, from version 3 on: the reset gate acts on h before the product."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    (W_xr, W_xz, W_x), (W_hr, W_hz, W_h), (b_xr, b_xz, b_x), (b_hr, b_hz, b_h) = (
        getattr(layer, name).chunk(3) for name in names
    )
    outputs = []
    for x_t in x.unbind(1):
        r = torch.sigmoid(x_t @ W_xr.T + b_xr + h @ W_hr.T + b_hr)
        z = torch.sigmoid(x_t @ W_xz.T + b_xz + h @ W_hz.T + b_hz)
        candidate = torch.tanh(x_t @ W_x.T + b_x + (r * h) @ W_h.T + b_h)
        h = z * h + (1 - z) * candidate
        outputs.append(h)
    return torch.stack(outputs, dim=1), h


def test_reset_before_is_chos_form_and_another_function():
    torch.manual_seed(0)
    before = GRU(WIDTH, HIDDEN, reset="before", dtype=torch.float64)
    after = GRU(WIDTH, HIDDEN, dtype=torch.float64)
    after.load_state_dict(before.state_dict())
    x, h = leaf(BATCH, STEPS, WIDTH), leaf(BATCH, HIDDEN, seed=2)
    y, memory = before(x, Hidden(hidden=h))
    y_loop, h_loop = chos_equations(before, x, h)
    assert_same([y, memory.hidden], [y_loop, h_loop])
    leaves = [x, h, *before.parameters()]
    assert_same(gradients(y, memory.hidden, leaves), gradients(y_loop, h_loop, leaves))
    assert (after(x, Hidden(hidden=h))[0] - y).abs().max() > 1e-2


@pytest.mark.parametrize("forget_bias", [1.0, 0.0, 2.5])
def test_forget_bias_is_settable(forget_bias):
    layer = LSTM(WIDTH, HIDDEN) if forget_bias == 1.0 else LSTM(WIDTH, HIDDEN, forget_bias=forget_bias)
    _, forget, _, _ = (layer.bias_ih + layer.bias_hh).chunk(4)
    assert torch.equal(forget, torch.full((HIDDEN,), forget_bias))


def test_forget_bias_survives_a_reset_and_needs_a_bias():
    layer = LSTM(WIDTH, HIDDEN, forget_bias=3.0)
    layer.reset_parameters()
    assert torch.equal((layer.bias_ih + layer.bias_hh).chunk(4)[1], torch.full((HIDDEN,), 3.0))
    assert LSTM(WIDTH, HIDDEN, bias=False, forget_bias=3.0).bias_ih is None


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_all_else_starts_as_torch_starts(kind):
    torch.manual_seed(0)
    layer = kind(30, 100)
    for p in (layer.weight_ih, layer.weight_hh):
        assert p.abs().max() <= 0.1
        assert 0.055 < p.std() < 0.061  # 0.1 / √3 = 0.0577


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_half_precision_on_a_cpu_never_meets_a_fused_kernel(kind, monkeypatch):
    """Those kernels end in an illegal instruction on some chips."""
    layer = kind(WIDTH, HIDDEN, dtype=torch.bfloat16)
    monkeypatch.setattr(kind, "fused", lambda *_: pytest.fail("a fused kernel was called"))
    y, _ = layer(torch.ones(2, 9, WIDTH, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
