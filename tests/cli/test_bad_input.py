"""What a layer refuses to read: the words name the argument, what was seen and what was wanted."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from recollect.core.compose import Bidirectional, Residual, Stack
from recollect.core.growing import Growing
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Both, Layers, Memory, Nothing, grows, static
from recollect.core.validate import ContractError, check_ids, check_prefix
from recollect.laws.check import check_layer
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, LayerNorm, Linear
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Hidden, HiddenCell
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.ttt.layer import TTTMLP, TTTLinear

X = torch.zeros(2, 5, 3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps(Growing):
    steps: Tensor = grows(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts(Memory):
    parts: tuple[Tensor, ...]
    inner: Memory
    size: int = static(1)


class LastTwo(SequenceLayer[Steps]):
    """Remembers two steps and gives the inputs back."""

    width = width_out = 3

    def initial_memory(self, batch_size, like=None):
        steps = torch.zeros(batch_size, 0, 3, **self._like(like))
        return Steps(steps=steps, length=torch.zeros(batch_size, dtype=torch.long), limit=2)

    def read(self, x, memory, valid):
        return x, memory


class Composite(SequenceLayer[Parts]):
    """Has a memory of parts and gives the inputs back."""

    width = width_out = 3

    def initial_memory(self, batch_size, like=None):
        return Parts(parts=(torch.zeros(batch_size), torch.zeros(batch_size)), inner=Nothing())

    def read(self, x, memory, valid):
        return x, memory


def refused(words, layer, *args, **kwargs):
    """Demand exactly these words."""
    with pytest.raises(ContractError, match=f"^{re.escape(words)}$") as caught:
        layer(*args, **kwargs)
    assert caught.value.argument == words.partition(":")[0]
    assert isinstance(caught.value, ValueError)


def hidden(rows=2, size=4, **factory):
    return Hidden(hidden=torch.zeros(rows, size, **factory))


# ---- x -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 5, 7), "x: got shape (2, 5, 7), expected (B, T, 3): this layer's width is 3"),
        (torch.zeros(5, 3), "x: got shape (5, 3), expected (B, T, 3): this layer's width is 3"),
        (torch.zeros(2, 5, 3, 1), "x: got shape (2, 5, 3, 1), expected (B, T, 3): this layer's width is 3"),
        (X.long(), "x: got dtype torch.int64, expected torch.float32"),
        (X.bool(), "x: got dtype torch.bool, expected torch.float32"),
        (X.double(), "x: got dtype torch.float64, expected torch.float32, the dtype of this layer's parameters"),
        (X.half(), "x: got dtype torch.float16, expected torch.float32, the dtype of this layer's parameters"),
        (X.to("meta"), "x: got device meta, expected cpu, where this layer is"),
    ],
    ids=["width", "rank 2", "rank 4", "int", "bool", "float64", "float16", "device"],
)
@pytest.mark.parametrize("layer", [RNN(3, 4), LSTM(3, 4), FeedForward(3), LayerNorm(3)], ids=lambda m: type(m).__name__)
def test_wrong_inputs(layer, x, words):
    refused(words, layer, x)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(2, 5), "x: got dtype torch.float32, expected ids of dtype torch.int64 or torch.int32"),
        (
            torch.zeros(2, 5, dtype=torch.uint8),
            "x: got dtype torch.uint8, expected ids of dtype torch.int64 or torch.int32",
        ),
        (torch.zeros(5, dtype=torch.long), "x: got shape (5,), expected ids of shape (B, T)"),
        (torch.zeros(2, 5, 3, dtype=torch.long), "x: got shape (2, 5, 3), expected ids of shape (B, T)"),
        (torch.zeros(2, 5, dtype=torch.long, device="meta"), "x: got device meta, expected cpu, where this layer is"),
    ],
    ids=["float", "uint8", "rank 1", "rank 3", "device"],
)
@pytest.mark.parametrize("layer", [Embedding(7, 3), Stack(Embedding(7, 3), RNN(3, 4))], ids=["Embedding", "Stack"])
def test_wrong_ids(layer, x, words):
    refused(words, layer, x)


def test_a_layer_without_parameters_takes_any_float():
    layer = Dropout(3, 0.5)
    refused("x: got dtype torch.int64, expected floating point", layer, X.long())
    assert layer(X.double())[0].dtype == torch.float64


def test_int32_ids_are_read_as_int64_ones():
    layer, ids = Embedding(7, 3), torch.arange(6).reshape(2, 3)
    assert torch.equal(layer(ids.int())[0], layer(ids)[0])


# ---- valid -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("valid", "words"),
    [
        (torch.ones(2, 4).bool(), "valid: got shape (2, 4), expected (2, 5), the (B, T) of x"),
        (torch.ones(5, 2).bool(), "valid: got shape (5, 2), expected (2, 5), the (B, T) of x"),
        (torch.ones(2, 5, 3).bool(), "valid: got shape (2, 5, 3), expected (2, 5), the (B, T) of x"),
        (torch.ones(5).bool(), "valid: got shape (5,), expected (2, 5), the (B, T) of x"),
        (torch.ones(2, 5), "valid: got dtype torch.float32, expected torch.bool, True where a step is real"),
        (torch.ones(2, 5).long(), "valid: got dtype torch.int64, expected torch.bool, True where a step is real"),
        (torch.ones(2, 5).bool().to("meta"), "valid: got device meta, expected cpu, where x is"),
    ],
    ids=["short", "turned", "rank 3", "rank 1", "float", "int", "device"],
)
@pytest.mark.parametrize("layer", [GRU(3, 4), Linear(3, 4), Bidirectional(RNN(3, 4), RNN(3, 4))])
def test_wrong_masks(layer, valid, words):
    refused(words, layer, X, valid=valid)


# ---- memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        (hidden(3), "memory.hidden: got shape (3, 4), expected (2, 4); the batch of x has 2 rows"),
        (hidden(1), "memory.hidden: got shape (1, 4), expected (2, 4); the batch of x has 2 rows"),
        (hidden(2, 5), "memory.hidden: got shape (2, 5), expected (2, 4); the batch of x has 2 rows"),
        (
            Hidden(hidden=torch.zeros(1, 2, 4)),
            "memory.hidden: got shape (1, 2, 4), expected (2, 4); the batch of x has 2 rows",
        ),
        (hidden(dtype=torch.float64), "memory.hidden: got dtype torch.float64, expected torch.float32"),
        (hidden(device="meta"), "memory.hidden: got device meta, expected cpu, where x is"),
        (Nothing(), "memory: got Nothing, expected Hidden: it is another layer's memory"),
        (LSTM(3, 4).initial_memory(2), "memory: got HiddenCell, expected Hidden: it is another layer's memory"),
        (Layers(layers=(hidden(),)), "memory: got Layers, expected Hidden: it is another layer's memory"),
        (torch.zeros(2, 4), "memory: got Tensor, expected Hidden: it is another layer's memory"),
    ],
    ids=[
        "batch",
        "batch of one",
        "size",
        "torch's shape",
        "dtype",
        "device",
        "Nothing",
        "LSTM's",
        "stack's",
        "a tensor",
    ],
)
@pytest.mark.parametrize("layer", [RNN(3, 4), GRU(3, 4)], ids=["RNN", "GRU"])
def test_wrong_memories(layer, memory, words):
    refused(words, layer, X, memory)


def test_both_parts_of_an_lstms_memory_are_checked():
    memory = HiddenCell(hidden=torch.zeros(2, 4), cell=torch.zeros(2, 5))
    refused("memory.cell: got shape (2, 5), expected (2, 4); the batch of x has 2 rows", LSTM(3, 4), X, memory)


def test_memories_of_another_stack():
    stack = Stack(RNN(3, 4), LSTM(4, 4))
    other = Stack(RNN(3, 4), RNN(4, 4), RNN(4, 4)).initial_memory(2)
    wanted = "expected Layers of 2 memories, as this stack returns"
    refused(f"memory: got Layers of 3 memories, {wanted}", stack, X, other)
    refused(f"memory: got Hidden, {wanted}", stack, X, hidden())
    turned = Layers(layers=stack.initial_memory(2).layers[::-1])
    refused("memory: got HiddenCell, expected Hidden: it is another layer's memory", stack, X, turned)


def test_memories_inside_wrappers():
    words = "memory.hidden: got shape (2, 5), expected (2, 3); the batch of x has 2 rows"
    refused(words, Residual(RNN(3, 3)), X, hidden(2, 5))
    both = Bidirectional(RNN(3, 3), RNN(3, 3))
    refused(words, both, X, Both(forward=hidden(2, 3), backward=hidden(2, 5)))
    refused("memory: got Hidden, expected Both, the states of two directions", both, X, hidden(2, 3))


def test_growing_memories_may_be_of_any_length_but_not_of_another_window():
    layer, length = LastTwo(), torch.zeros(2, dtype=torch.long)
    for slots in (0, 1, 2):
        layer(X, Steps(steps=torch.zeros(2, slots, 3), length=length, limit=2))
    wanted = "expected {'limit': 2}: it is another layer's memory"
    refused(
        f"memory: got {{'limit': 3}}, {wanted}", layer, X, Steps(steps=torch.zeros(2, 0, 3), length=length, limit=3)
    )
    words = "memory.steps: got shape (2, 1, 4), expected (2, 1, 3); the batch of x has 2 rows"
    refused(words, layer, X, Steps(steps=torch.zeros(2, 1, 4), length=length, limit=2))
    words = "memory.steps: got shape (2,), expected (2, 0, 3); the batch of x has 2 rows"
    refused(words, layer, X, Steps(steps=torch.zeros(2), length=length, limit=2))
    words = "memory.length: got dtype torch.int32, expected torch.int64"
    refused(words, layer, X, Steps(steps=torch.zeros(2, 0, 3), length=length.int(), limit=2))


def test_parts_of_memories_are_named():
    layer, a = Composite(), torch.zeros(2)
    words = "memory.parts.1: got shape (3,), expected (2,); the batch of x has 2 rows"
    refused(words, layer, X, Parts(parts=(a, torch.zeros(3)), inner=Nothing()))
    refused("memory.parts: got 1 parts, expected 2 parts", layer, X, Parts(parts=(a,), inner=Nothing()))
    words = "memory.inner: got Hidden, expected Nothing: it is another layer's memory"
    refused(words, layer, X, Parts(parts=(a, a), inner=hidden()))
    refused("memory.inner: got a Tensor, expected a Nothing", layer, X, Parts(parts=(a, a), inner=a))


def test_autocast_may_bring_another_dtype():
    layer = Linear(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(X.bfloat16())[0].dtype == torch.bfloat16
    refused(
        "x: got dtype torch.bfloat16, expected torch.float32, the dtype of this layer's parameters", layer, X.bfloat16()
    )


# ---- building ----------------------------------------------------------------------------------------


def test_layers_that_do_not_fit_together():
    refused("layers[1]: got width 5, expected 4, the output width of layers[0]", Stack, RNN(3, 4), RNN(5, 4))
    refused("layers[1]: got width None, expected 4, the output width of layers[0]", Stack, RNN(3, 4), Embedding(7, 4))
    refused("backward: got width 4, expected 3, as forward", Bidirectional, RNN(3, 4), RNN(4, 4))
    refused("layer: got width 3 to 4, expected equal widths, so that x can be added", Residual, RNN(3, 4))
    refused("layer: got width None to 3, expected equal widths, so that x can be added", Residual, Embedding(7, 3))
    with pytest.raises(ValueError, match="layers: got none, expected at least one layer"):
        Stack()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Dropout(3, -0.1), "rate: got -0.1, expected 0 ≤ rate < 1"),
        (lambda: FeedForward(3, activation="tanh"), "activation: got 'tanh', expected 'relu', 'gelu', 'gelu_tanh' or"),
    ],
)
def test_settings_out_of_range(build, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        build()


# ---- values, where data enters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "valid",
    [torch.ones(2, 0), torch.zeros(0, 3), torch.ones(2, 3), torch.zeros(2, 3), torch.ones(3, 4).tril(-1)],
)
def test_prefixes_are_accepted(valid):
    check_prefix(valid.bool())


@pytest.mark.parametrize(
    ("rows", "row", "step"),
    [
        ([[1, 1, 0], [1, 0, 1]], 1, 2),
        ([[0, 1, 1], [1, 0, 1]], 0, 1),
        ([[1, 0, 0, 1, 0, 1]], 0, 3),
    ],
    ids=["a hole", "left padding", "two holes"],
)
def test_masks_that_are_no_prefix_are_refused(rows, row, step):
    words = (
        f"valid: got row {row} valid again at step {step}, expected a prefix of True, then only False: right padding, "
        "as rc.pad(sequences) makes it"
    )
    refused(words, check_prefix, torch.tensor(rows).bool())


def test_ids_out_of_range_are_refused():
    check_ids(torch.tensor([[0, 6]]), 7)
    check_ids(torch.zeros(2, 0, dtype=torch.long), 7)
    refused("ids: got ids from 0 to 7, expected 0 to 6", check_ids, torch.tensor([[0, 7]]), 7)
    refused("ids: got ids from -1 to 3, expected 0 to 6", check_ids, torch.tensor([[3, -1]]), 7)
    refused("labels: got ids from 9 to 9, expected 0 to 6", check_ids, torch.tensor([9]), 7, "labels")


def test_things_that_are_no_tensors():
    layer = RNN(2, 2)
    with pytest.raises(ContractError, match="x: got a list, expected a Tensor"):
        layer([[0.0, 1.0]])
    with pytest.raises(ContractError, match="valid: got a list, expected a Tensor"):
        layer(torch.zeros(1, 1, 2), valid=[[True]])


ATTENTION_SETTINGS = [
    (lambda: SelfAttention(10, 3), "heads: got 3, expected a divisor of the width 10"),
    (lambda: SelfAttention(8, 4, kv_heads=3), "kv_heads: got 3, expected a divisor of heads, 4"),
    (lambda: SelfAttention(6, 2, positions="rotary"), "heads: got a head width of 3, expected an even one"),
    (lambda: SelfAttention(8, 2, positions="learned"), "positions: got 'learned', expected 'rotary', 'alibi' or None"),
    (lambda: SelfAttention(8, 2, window=0), "window: got 0, expected at least 1"),
    (lambda: CrossAttention(8, 3), "heads: got 3, expected a divisor of the width 8"),
    (lambda: LinearAttention(8, 3), "heads: got 3, expected a divisor of the width 8"),
    (lambda: LinearAttention(8, 2, feature="relu"), "feature: got 'relu', expected 'elu' or 'identity'"),
    (lambda: LinearAttention(8, 2, feature="identity", normalised=True), "normalised: got True"),
    (lambda: TTTLinear(8, 3), "heads: got 3, expected a divisor of the width 8"),
    (lambda: TTTMLP(8, 2, mini_batch=0), "mini_batch: got 0, expected at least 1, or None"),
    (lambda: Positions(4, "random"), "kind: got 'random', expected 'sinusoidal' or 'learned'"),
    (lambda: Positions(4, "learned"), "max_length: got None, expected a number"),
    (lambda: Positions(4, max_length=3), "max_length: got 3, expected a number for 'learned' positions and none"),
    (lambda: Window(4, -1), "order: got -1, expected 0 or more"),
    (lambda: Markov(4, -1), "order: got -1, expected at least 0"),
    (lambda: Block(LSTM(4, 5)), "mixer: got width 4 to 5, expected equal widths"),
    (lambda: Block(LSTM(4, 4), norm="middle"), "norm, kind: got 'middle', 'layer', expected 'pre' or 'post'"),
]


@pytest.mark.parametrize(("build", "words"), ATTENTION_SETTINGS, ids=[words for _, words in ATTENTION_SETTINGS])
def test_settings_of_attention_out_of_range(build, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        build()


def test_cross_attention_refuses_to_begin_without_a_source():
    layer = CrossAttention(4, 2)
    with pytest.raises(ContractError, match=r"memory: got None, expected a Source: write it first with remember\("):
        layer(torch.zeros(1, 2, 4))
    source = layer.remember(torch.zeros(3, 5, 4))
    with pytest.raises(ContractError, match=re.escape("memory.keys: got shape (3, 5, 2, 2), expected (1, 5, 2, 2)")):
        layer(torch.zeros(1, 2, 4), source)
    with pytest.raises(ContractError, match="memory: got KeysValues, expected Source"):
        layer(torch.zeros(1, 2, 4), SelfAttention(4, 2).initial_memory(1))


def test_attention_refuses_the_memory_of_another_window_or_head_count():
    x = torch.zeros(1, 2, 8)
    _, memory = SelfAttention(8, 2)(x)
    with pytest.raises(ContractError, match=r"memory: got \{'limit': None\}, expected \{'limit': 3\}"):
        SelfAttention(8, 2, window=3)(x, memory)
    with pytest.raises(ContractError, match=re.escape("memory.keys: got shape (1, 2, 2, 4), expected (1, 2, 4, 2)")):
        SelfAttention(8, 4)(x, memory)
    with pytest.raises(ContractError, match="memory: got KeysValues, expected Nothing"):
        SelfAttention(8, 2, causal=False)(x, memory)


def test_past_a_learned_table_there_is_nothing():
    layer = Positions(2, "learned", max_length=3)
    _, memory = layer(torch.zeros(1, 2, 2))
    with pytest.raises(ContractError, match="x: got a step at position 3, expected at most 3 learned positions"):
        layer(torch.zeros(1, 2, 2), memory)
    layer(torch.zeros(1, 2, 2), memory, valid=torch.tensor([[True, False]]))  # padding may lie beyond it


def test_check_layer_refuses_ids_out_of_range():
    with pytest.raises(ContractError, match="inputs: got ids from 0 to 7, expected 0 to 6"):
        check_layer(Embedding(7, 4), inputs=torch.tensor([[0, 7]]))
