"""Every layer that must keep the nine laws, small, by name. Tests take a factory and build it in their dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from recollect.core.compose import Bidirectional, Repeated, Residual, Stack
from recollect.core.layer import SequenceLayer
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import BasicSelfAttention, SelfAttention
from recollect.layers.block import Block
from recollect.layers.convolution import Convolution
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, LayerNorm, Linear, RMSNorm
from recollect.layers.positions import Positions
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.ttt.layer import TTTMLP, TTTLinear
from recollect.models.masked import MaskedModel
from recollect.models.recommendation import Recommender

Factory: TypeAlias = Callable[[], SequenceLayer[Any]]

WIDTH, HIDDEN, VOCAB = 3, 4, 7

LAYERS: list[tuple[str, Factory]] = [
    ("RNN tanh", lambda: RNN(WIDTH, HIDDEN)),
    ("RNN relu", lambda: RNN(WIDTH, HIDDEN, nonlinearity="relu")),
    ("RNN without bias", lambda: RNN(WIDTH, HIDDEN, bias=False)),
    ("GRU reset after", lambda: GRU(WIDTH, HIDDEN)),
    ("GRU reset before", lambda: GRU(WIDTH, HIDDEN, reset="before")),
    ("GRU without bias", lambda: GRU(WIDTH, HIDDEN, bias=False)),
    ("LSTM", lambda: LSTM(WIDTH, HIDDEN)),
    ("LSTM without bias", lambda: LSTM(WIDTH, HIDDEN, bias=False)),
    ("FeedForward relu", lambda: FeedForward(WIDTH, activation="relu")),
    ("FeedForward gelu", lambda: FeedForward(WIDTH, activation="gelu")),
    ("FeedForward gelu_tanh", lambda: FeedForward(WIDTH, activation="gelu_tanh")),
    ("FeedForward swiglu", lambda: FeedForward(WIDTH, activation="swiglu", bias=False, dropout=0.5)),
    ("LayerNorm", lambda: LayerNorm(WIDTH)),
    ("RMSNorm", lambda: RMSNorm(WIDTH)),
    ("Linear", lambda: Linear(WIDTH, 5)),
    ("Embedding", lambda: Embedding(VOCAB, WIDTH)),
    ("Dropout", lambda: Dropout(WIDTH, 0.5)),
    ("Stack from ids", lambda: Stack(Embedding(VOCAB, WIDTH), LSTM(WIDTH, HIDDEN), GRU(HIDDEN, 5), Linear(5, VOCAB))),
    ("Stack in a Stack", lambda: Stack(RNN(WIDTH, HIDDEN), Stack(LayerNorm(HIDDEN), LSTM(HIDDEN, HIDDEN)))),
    ("Residual", lambda: Residual(Stack(LayerNorm(WIDTH), GRU(WIDTH, WIDTH)))),
    ("Bidirectional mixed", lambda: Bidirectional(LSTM(WIDTH, HIDDEN), GRU(WIDTH, 5))),
    ("Bidirectional from ids", lambda: Bidirectional(Stack(Embedding(VOCAB, 2), RNN(2, 3)), Embedding(VOCAB, 2))),
    ("Repeated", lambda: Repeated(Block(SelfAttention(8, 2)), 2)),
    ("RecurrentStack", lambda: GRU.stack(WIDTH, HIDDEN, 2)),
    ("RecurrentStack both ways", lambda: LSTM.stack(WIDTH, HIDDEN, 2, bidirectional=True, dropout=0.5)),
    ("Markov", lambda: counted(Markov(VOCAB, 2))),
    ("Markov order 0", lambda: counted(Markov(VOCAB, 0))),
    ("Markov order 5, Witten-Bell", lambda: counted(Markov(VOCAB, 5, smoothing="witten-bell"))),
    ("Markov, maximum likelihood", lambda: counted(Markov(VOCAB, 3, smoothing="maximum-likelihood"))),
    ("Recommender", lambda: Recommender("factors", users=3, items=4, width=2)),
    ("Recommender without factors", lambda: Recommender("biases", users=3, items=4)),
    ("Window", lambda: Window(WIDTH, 2)),
    ("Window order 0", lambda: Window(WIDTH, 0)),
    ("Window order 9", lambda: Window(WIDTH, 9, hidden=5, width_out=2)),
    ("Convolution", lambda: stirred(Convolution(WIDTH))),
    ("Convolution of one", lambda: stirred(Convolution(WIDTH, 1))),
    ("Positions sinusoidal", lambda: Positions(WIDTH)),
    ("Positions learned", lambda: Positions(WIDTH, "learned", max_length=200)),
    ("BasicSelfAttention", lambda: BasicSelfAttention(WIDTH)),
    ("BasicSelfAttention window", lambda: BasicSelfAttention(WIDTH, window=3, scaled=True)),
    ("BasicSelfAttention full view", lambda: BasicSelfAttention(WIDTH, causal=False)),
    ("SelfAttention", lambda: SelfAttention(8, 2)),
    ("SelfAttention not scaled", lambda: SelfAttention(8, 2, scaled=False, bias=False, dropout=0.5)),
    ("SelfAttention window", lambda: SelfAttention(8, 2, window=4)),
    ("SelfAttention window 1", lambda: SelfAttention(8, 2, window=1)),
    ("SelfAttention rotary", lambda: SelfAttention(8, 2, positions="rotary")),
    ("SelfAttention rotary, window", lambda: SelfAttention(8, 2, positions="rotary", window=3)),
    ("SelfAttention alibi", lambda: SelfAttention(12, 3, positions="alibi")),
    ("SelfAttention alibi, window", lambda: SelfAttention(8, 2, positions="alibi", window=3)),
    ("SelfAttention grouped", lambda: SelfAttention(8, 4, kv_heads=2)),
    ("SelfAttention one key head", lambda: SelfAttention(8, 4, kv_heads=1, window=5)),
    ("SelfAttention full view", lambda: SelfAttention(8, 2, causal=False)),
    ("SelfAttention full view, alibi", lambda: SelfAttention(8, 2, causal=False, positions="alibi", window=3)),
    ("SelfAttention full view, rotary", lambda: SelfAttention(8, 2, causal=False, positions="rotary")),
    ("LinearAttention", lambda: LinearAttention(8, 2)),
    ("LinearAttention with decay", lambda: LinearAttention(8, 2, decay=True)),
    ("LinearAttention identity", lambda: LinearAttention(8, 2, feature="identity", bias=True)),
    ("TTTLinear", lambda: TTTLinear(8, 2)),
    ("TTTLinear rotary", lambda: TTTLinear(8, 2, mini_batch=4, rotary=True)),
    ("TTTLinear mini-batch 1", lambda: TTTLinear(8, 2, mini_batch=1)),
    ("TTTLinear whole sequence", lambda: TTTLinear(8, 2, mini_batch=None)),
    ("TTTLinear plain", lambda: TTTLinear(8, 2, mini_batch=3, rate=0.05, **PLAIN)),
    ("TTTMLP", lambda: TTTMLP(8, 2, mini_batch=4)),
    ("TTTLinear as its authors'", lambda: TTTLinear(8, 2, mini_batch=4, **AUTHORS)),
    ("TTTMLP as its authors'", lambda: TTTMLP(8, 2, mini_batch=3, **AUTHORS)),
    ("TTTMLP whole sequence", lambda: TTTMLP(8, 2, mini_batch=None, rate=0.01, average=False)),
    ("Block pre-norm", lambda: Block(SelfAttention(8, 2))),
    ("Block post-norm, rms", lambda: Block(LSTM(8, 8), norm="post", kind="rms", dropout=0.5)),
    (
        "Block of Llama",
        lambda: Block(
            SelfAttention(8, 4, **GROUPED), FeedForward(8, 12, activation="swiglu", bias=False), kind="rms", eps=1e-6
        ),
    ),
    ("MaskedModel", lambda: MaskedModel(vocab_size=VOCAB, **BERT)),
    ("MaskedModel as ALBERT", lambda: MaskedModel(vocab_size=VOCAB, embedding=3, shared=True, **BERT)),
    ("MaskedModel of LSTMs", lambda: MaskedModel(vocab_size=VOCAB, family="bilstm", width=4, dropout=0.0)),
    ("MaskedModel pre-norm, without head", lambda: MaskedModel(vocab_size=VOCAB, norm="pre", masked=False, **BERT)),
    ("Stack of mixed layers", lambda: Stack(Window(WIDTH, 2, width_out=8), Block(SelfAttention(8, 2)), LSTM(8, 8))),
    (
        "Stack of the line",
        lambda: Stack(
            Embedding(VOCAB, 8),
            Positions(8),
            GRU(8, 8),
            Block(SelfAttention(8, 2, window=5)),
            Block(LinearAttention(8, 2), norm="post"),
            Block(TTTLinear(8, 2, mini_batch=4)),
            SelfAttention(8, 2),
        ),
    ),
]

GROUPED = {"kv_heads": 2, "positions": "rotary", "rotary_base": 500.0, "bias": False}
BERT = {"width": 8, "heads": 2, "max_length": 200, "pooled": True}
PLAIN = {"norm": False, "residual": False, "learned_start": False, "average": False}
AUTHORS = {"rotary": True, "learned_share": True, "inner_bias": True, "post_norm": True, "gate": True}


def counted(markov: Markov) -> Markov:
    """Let a model that counts have counted something."""
    markov.count(torch.randint(VOCAB, (6, 40), generator=torch.Generator().manual_seed(1)))
    return markov


def stirred(layer: SequenceLayer[Any]) -> SequenceLayer[Any]:
    """Move a layer away from where it starts, as the identity, so that its weights are seen at work."""
    with torch.no_grad():
        for p in layer.parameters():
            p += torch.randn(p.shape, generator=torch.Generator().manual_seed(2))
    return layer


def build(factory: Factory, dtype: torch.dtype = torch.float64, seed: int = 0) -> SequenceLayer[Any]:
    """Build a layer with fixed weights, ready to be read."""
    torch.manual_seed(seed)
    return factory().to(dtype).eval()


def inputs_for(layer: SequenceLayer[Any], batch: int, steps: int, seed: int = 0) -> torch.Tensor:
    """Draw fixed inputs of the layer's width and dtype, or ids of its vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    if layer.width is None:
        return torch.randint(layer.vocab_size, (batch, steps), generator=generator)
    x = torch.randn(batch, steps, layer.width, generator=generator, dtype=torch.float64)
    return x.to(layer._home()[0] or torch.float64)
