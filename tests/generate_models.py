"""Small language models of every family, and the slow definitions that generation must equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from recollect.core.compose import Residual, Stack
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers, Nothing
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Dropout, Embedding, LayerNorm, Linear
from recollect.layers.positions import Positions
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.ttt.layer import TTTMLP, TTTLinear

VOCAB, WIDTH = 7, 8

PARTS: dict[str, Callable[[], list[SequenceLayer[Any]]]] = {
    "lstm": lambda: [LSTM(WIDTH, WIDTH), Dropout(WIDTH, 0.5)],
    "attention": lambda: [Positions(WIDTH, "learned", max_length=60), Block(SelfAttention(WIDTH, 2), dropout=0.5)],
    "rotary window": lambda: [Block(SelfAttention(WIDTH, 2, positions="rotary", window=4))],
    "linear attention": lambda: [Block(LinearAttention(WIDTH, 2))],
    "ttt": lambda: [Block(TTTLinear(WIDTH, 2, mini_batch=4))],
    "ttt mlp": lambda: [Block(TTTMLP(WIDTH, 2, mini_batch=3))],
    "window": lambda: [Window(WIDTH, 3)],
    "mixed": lambda: [
        Block(SelfAttention(WIDTH, 2)),
        Block(SelfAttention(WIDTH, 2, window=3)),
        LSTM(WIDTH, WIDTH),
        Block(TTTLinear(WIDTH, 2, mini_batch=2)),
    ],
}
FAMILIES = [*PARTS, "markov"]


def language_model(name: str, vocab_size: int = VOCAB, seed: int = 0) -> SequenceLayer[Any]:
    """Give a model with fixed float64 weights, sharp enough not to repeat itself, in training mode."""
    torch.manual_seed(seed)
    if name == "markov":
        markov = Markov(vocab_size, 2)
        markov.count(torch.randint(vocab_size, (4, 60)))
        return markov.double()
    last = [LayerNorm(WIDTH), Linear(WIDTH, vocab_size, bias=False)]
    return sharpened(Stack(Embedding(vocab_size, WIDTH), *PARTS[name](), *last).double())


def sharpened(model: Stack) -> Stack:
    """Enlarge the weights, so that what was read matters for what comes next."""
    with torch.no_grad():
        for layer in model.layers[1:-1]:
            for p in layer.parameters():
                p.mul_(4 if p.dim() > 1 else 1)
        model[-1].linear.weight.normal_()
    return model


def translator() -> tuple[SequenceLayer[Any], Callable[[Tensor, Tensor], Layers]]:
    """Give a decoder that looks at a source, and a function that writes its memory from sources (B, S, WIDTH)."""
    torch.manual_seed(3)
    own, cross = Block(SelfAttention(WIDTH, 2)), CrossAttention(WIDTH, 2)
    last = [LayerNorm(WIDTH), Linear(WIDTH, VOCAB, bias=False)]
    model = sharpened(Stack(Embedding(VOCAB, WIDTH), own, Residual(cross), *last).double())

    def remember(source: Tensor, valid: Tensor) -> Layers:
        nothing = Nothing()
        with torch.no_grad():
            written = cross.remember(source, valid)
        return Layers(layers=(nothing, own.initial_memory(len(source)), written, nothing, nothing))

    return model, remember


def next_logprobs(model: SequenceLayer[Any], ids: list[int]) -> Tensor:
    """Give log p (V,) of what comes after ids, reading them all anew."""
    training = model.training
    model.eval()
    with torch.no_grad():
        y, _ = model(torch.tensor([ids]))
    model.train(training)
    return y[0, -1].log_softmax(-1)


def slow_greedy(model: SequenceLayer[Any], prompt: list[int], tokens: int, stop: tuple[int, ...] = ()) -> list[int]:
    """Go on greedily, reading everything anew for each id."""
    said: list[int] = []
    while len(said) < tokens and not (said and said[-1] in stop):
        said.append(int(next_logprobs(model, prompt + said).argmax()))
    return said


def ragged(count: int, seed: int = 0, longest: int = 9) -> list[list[int]]:
    """Draw prompts of different lengths, at least one id each."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(VOCAB, (n,), generator=generator).tolist() for n in lengths]
