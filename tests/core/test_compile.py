"""A decode through `torch.compile`: one graph without breaks, and no recompilation once the shapes have settled."""

from __future__ import annotations

import pytest
import torch

from recollect import (
    GRU,
    LSTM,
    RNN,
    TTTMLP,
    BasicSelfAttention,
    Block,
    Embedding,
    LinearAttention,
    Markov,
    Positions,
    SelfAttention,
    Stack,
    TTTLinear,
    Window,
)
from tiers import slow_after

STACKS = {
    "window": lambda: Stack(Window(8, 3), Window(8, 2)),
    "rnn": lambda: Stack(RNN(8, 8), RNN(8, 8, nonlinearity="relu")),
    "gru": lambda: Stack(GRU(8, 8), GRU(8, 8, reset="before")),
    "lstm": lambda: Stack(Embedding(9, 8), LSTM(8, 8), LSTM(8, 8)),
    "basic attention": lambda: Stack(BasicSelfAttention(8), BasicSelfAttention(8)),
    "attention": lambda: Stack(Positions(8), Block(SelfAttention(8, 2)), Block(SelfAttention(8, 2))),
    "rotary, grouped": lambda: Stack(Block(SelfAttention(8, 4, kv_heads=2, positions="rotary"))),
    "alibi": lambda: Stack(Block(SelfAttention(8, 2, positions="alibi"))),
    "windowed attention": lambda: Stack(Block(SelfAttention(8, 2, window=16)), Block(SelfAttention(8, 2, window=5))),
    "linear attention": lambda: Stack(Block(LinearAttention(8, 2)), Block(LinearAttention(8, 2))),
    "ttt-linear": lambda: Stack(Block(TTTLinear(8, 2)), Block(TTTLinear(8, 2, mini_batch=4))),
    "ttt-mlp": lambda: Stack(Block(TTTMLP(8, 2)), Block(TTTMLP(8, 2, mini_batch=None))),
    "mixed": lambda: Stack(LSTM(8, 8), Block(SelfAttention(8, 2)), Block(TTTLinear(8, 2))),
}


def decode(layer, room: int | None = None, steps: int = 64):
    """Read step by step through the compiled layer; give outputs, the whole reading, and compilations by step."""
    torch._dynamo.reset()
    compiled_graphs = []

    def backend(graph, inputs):
        compiled_graphs.append(graph)
        return graph.forward

    layer = layer.eval()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randint(layer[0].vocab_size, (2, steps)) if layer.width is None else torch.randn(2, steps, layer.width)
    outputs, counts = [], []
    with torch.no_grad():
        memory = layer.initial_memory(2)
        memory = memory if room is None else memory.reserve(room)
        for t in range(steps):
            y, memory = compiled(x[:, t : t + 1], memory)
            outputs.append(y)
            counts.append(len(compiled_graphs))
        return torch.cat(outputs, 1), layer(x)[0], counts


@pytest.mark.parametrize("name", slow_after(4, STACKS))
def test_no_break_and_no_recompilation_from_step_3_on(name):
    torch.manual_seed(0)
    outputs, whole, counts = decode(STACKS[name]())
    torch.testing.assert_close(outputs, whole, rtol=1e-4, atol=1e-4)
    assert counts[2] == counts[-1], f"compilations after each step: {counts}"


@pytest.mark.parametrize("name", ["attention", "windowed attention", "rotary, grouped"])
def test_reserved_memory_compiles_once(name):
    torch.manual_seed(0)
    outputs, whole, counts = decode(STACKS[name](), room=64)
    torch.testing.assert_close(outputs, whole, rtol=1e-4, atol=1e-4)
    assert counts[-1] == 1


def test_markov_compiles_where_sizes_may_depend_on_data():
    """The children of a context are as many as were counted, so this one option must be on."""
    torch.manual_seed(0)
    markov = Markov(9, 2)
    markov.count(torch.randint(9, (4, 50)))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        outputs, whole, counts = decode(Stack(markov))
    torch.testing.assert_close(outputs, whole)
    assert counts[2] == counts[-1]
