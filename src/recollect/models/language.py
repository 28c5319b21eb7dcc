"""The language model: ids to logits and a memory, for every family of the line.

    logits, memory = model(ids, memory)

Recurrent families: embedding, recurrent layers, a linear map to the vocabulary (Zaremba et al. 2014). The others:
embedding, pre-norm blocks, a norm, the map (GPT-2, Radford et al. 2019), with the family's mixer in the blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.errors import check_choice, is_own
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers, Memory
from recollect.core.settings import setting
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError
from recollect.layers.attention.linear_attention import LinearAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.convolution import Convolution
from recollect.layers.ngram.markov import Markov
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, Linear, make_norm
from recollect.layers.positions import ROTARY_BASE, Positions
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import Recurrence
from recollect.layers.recurrent.rnn import RNN
from recollect.layers.ttt.layer import TTTMLP, TTTLinear
from recollect.models.own import MakeLayer, make_own, register_layer
from recollect.models.stages import copy_parameters, stages_of

RECURRENT: dict[str, type[Recurrence[Any]]] = {"rnn": RNN, "gru": GRU, "lstm": LSTM}
BLOCKS = ("linear-attention", "transformer", "ttt-linear", "ttt-mlp")
FAMILIES = ("markov", "window", *RECURRENT, *BLOCKS)
LEARNED = FAMILIES[1:]
USED_BY: dict[str, tuple[str, ...]] = {  # the settings that a user may choose, and the families that use them
    "width": LEARNED,
    "layers": LEARNED,
    "heads": BLOCKS,
    "hidden": ("window", *BLOCKS),
    "order": ("markov", "window"),
    "max_length": ("transformer",),
    "window": ("transformer",),
    "mini_batch": ("ttt-linear", "ttt-mlp"),
    "convolution": ("linear-attention", "ttt-linear", "ttt-mlp"),
    "gate": ("ttt-linear", "ttt-mlp"),
    "post_norm": ("ttt-linear", "ttt-mlp"),
    "learned_share": ("ttt-linear", "ttt-mlp"),
    "inner_bias": ("ttt-linear", "ttt-mlp"),
    "dropout": LEARNED,
    "bias": LEARNED,
    "tied": LEARNED,
    "head_bias": LEARNED,
    "activation": BLOCKS,
    "norm_kind": BLOCKS,
    "eps": BLOCKS,
    "kv_heads": ("transformer",),
    "rotary_base": ("transformer",),
    "start": ("window", *RECURRENT),
}
OWN_USES = ("width", "layers", "dropout", "bias", "tied")  # the settings that user-defined layers use


@dataclass(frozen=True)
class LanguageConfig:
    """The config of a language model; each family uses some of the settings.

    >>> config = rc.LanguageConfig("gru", vocab_size=65, width=32)
    >>> rc.LanguageModel(config).vocab_size
    65
    """

    family: str
    vocab_size: int
    width: int = setting(128, least=1)
    layers: int = setting(2, least=1, most=1000)
    heads: int = setting(4, least=1, most=4096)
    hidden: int | None = setting(None, least=1, help="of the feed-forward networks; None: 4 widths")
    order: int = setting(4, least=0, help="markov, window: the number of symbols remembered")
    max_length: int | None = setting(
        None, least=1, most=10_000_000, help="transformer: a table of learned positions; None: rotary"
    )
    window: int | None = setting(None, least=1, help="transformer: attend to the nearest so many steps")
    mini_batch: int = setting(16, least=1, help="ttt: steps between two inner updates")
    convolution: int = setting(4, least=1, help="linear attention, ttt: steps of the convolution before the mixer")
    gate: bool = setting(False, help="ttt: multiply the answers by gelu(θ x) before the output")
    post_norm: bool = setting(False, help="ttt: normalise the answers before the output")
    learned_share: bool = setting(False, help="ttt: learn the weight of an inner update by its place in a mini-batch")
    inner_bias: bool = setting(False, help="ttt: biases in the inner model")
    dropout: float = setting(0.0, least=0.0, below=1.0)
    bias: bool = setting(True, help="of matrix products, norms and the map to the vocabulary")
    tied: bool = setting(False, help="embedding and output share their weights")
    head_bias: bool | None = setting(None, help="of the map to the vocabulary; None: as bias")
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = setting("gelu", help="of the feed-forward networks")
    norm_kind: Literal["layer", "rms"] = setting("layer", help="the norms before the layers of a block")
    eps: float = setting(1e-5, above=0.0, help="ε of the norms")
    kv_heads: int | None = setting(
        None, least=1, most=4096, help="transformer: heads of keys and values; None: as many as heads"
    )
    rotary_base: float = setting(ROTARY_BASE, above=0.0, help="transformer: base of the rotary positions' angles")
    start: float | None = setting(None, above=0.0, help="draw all weights uniformly from ±start")
    families: ClassVar[tuple[str, ...]] = FAMILIES

    def __post_init__(self) -> None:
        if not is_own(self.family):
            check_choice("family", self.family, self.families)
        for name in ("width", "layers", "heads", "convolution", "mini_batch"):
            if getattr(self, name) < 1:
                raise ContractError(name, getattr(self, name), "at least 1")


def settings_of(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return OWN_USES if is_own(family) else tuple(name for name, families in USED_BY.items() if family in families)


class LanguageModel(SequenceLayer[Memory]):
    """Any family as a model of text: ids (B, T) to logits (B, T, V); also a class or function from a width to a layer.

    >>> import torch
    >>> model = LanguageModel("gru", vocab_size=65, width=32, layers=1)
    >>> logits, memory = model(torch.tensor([[1, 2, 3]]))
    >>> logits.shape
    torch.Size([1, 3, 65])
    """

    def __init__(self, config: LanguageConfig | str | MakeLayer, vocab_size: int | None = None, **options: Any) -> None:
        super().__init__()
        if not isinstance(config, LanguageConfig):
            family = config if isinstance(config, str) else register_layer(config)
            if vocab_size is None:
                raise ContractError("vocab_size", None, f"the number of symbols, as in LanguageModel({family!r}, 65)")
            config = LanguageConfig(family, vocab_size, **options)
        self.config = config
        self.body: AnyLayer = build_body(config)
        self.width = None
        self.width_out = self.vocab_size = config.vocab_size
        self.growth = self.body.growth
        if config.tied:
            self._tie()

    def _tie(self) -> None:
        if not isinstance(self.body, Stack):
            raise ValueError(f"tied: got True with family {self.config.family!r}, which has no weights to share")
        first = self.body[0]
        last = self.body[len(self.body) - 1]
        assert isinstance(first, Embedding)
        assert isinstance(last, Linear)
        last.linear.weight = first.table.weight

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks: as the body's."""
        return self.body.streams

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Return the initial memory of the body."""
        memory: Memory = self.body.initial_memory(batch_size, like)
        return memory

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the logits of the symbol after each id."""
        return self.body(x, memory, valid=valid)

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return the inputs of the head (B, T, D), and the memory after: `model.head(features)` are the logits."""
        if not isinstance(self.body, Stack):
            got = f"the family {self.config.family!r}, which counts"
            raise ContractError("features", got, "a family with trained layers")
        memory = self.initial_memory(len(x), like=x) if memory is None else memory
        if not isinstance(memory, Layers):
            raise ContractError("memory", type(memory).__name__, "Layers: it is another model's memory")
        y, after = self.body[:-1](x, Layers(layers=memory.layers[:-1]), valid=valid)
        return y, Layers(layers=(*after.layers, memory.layers[-1]))

    def adopt(self, parent: LanguageModel) -> None:
        """Copy all weights of a trained model of the same config."""
        copy_parameters((parent,), (self,))

    def stages(self) -> list[list[nn.Module]]:
        """Return the parts below the head, from the bottom to the top; none where the model counts."""
        return stages_of(self.body[0], list(self.body)[1:-1]) if isinstance(self.body, Stack) else []

    @property
    def head(self) -> nn.Linear:
        """The map from features to logits."""
        return self._last().linear

    def replace_head(self, layer: nn.Linear) -> None:
        """Set another map, to change what is predicted; nn.Module lets no property be assigned a module."""
        last = self._last()
        last.linear = layer
        self.width_out = self.body.width_out = last.width_out = layer.out_features

    def _last(self) -> Linear:
        last = self.body[-1] if isinstance(self.body, Stack) else None
        if not isinstance(last, Linear):
            got = f"the family {self.config.family!r}, which counts"
            raise ContractError("head", got, "a family with trained layers")
        return last

    def _check_memory(self, memory: Memory, x: Tensor) -> None:
        pass  # the body checks it


def build_body(config: LanguageConfig) -> AnyLayer:
    """Return a family's layers, initialised."""
    if config.family == "markov":
        return Markov(config.vocab_size, config.order)
    bottom = Embedding(config.vocab_size, config.width)
    has_bias = config.bias if config.head_bias is None else config.head_bias
    top = Linear(config.width, config.vocab_size, bias=has_bias)
    body = Stack(bottom, *hidden_layers(config), top)
    if config.family in BLOCKS:
        initialise(body, config.layers)
    elif config.start is not None:
        for p in body.parameters():
            nn.init.uniform_(p, -config.start, config.start)
    return body


def hidden_layers(config: LanguageConfig, *, causal: bool = True) -> list[AnyLayer]:
    """Return the layers between embedding and output; without `causal` attention is to the whole sequence."""
    width = config.width
    drop = [Dropout(width, config.dropout)] if config.dropout else []
    if config.family not in BLOCKS:
        layers = [_mixer(config) for _ in range(config.layers)]
        return [*drop, *(part for layer in layers for part in (layer, *drop))]
    positions = [] if config.max_length is None else [Positions(width, "learned", max_length=config.max_length)]
    norm: dict[str, Any] = {"eps": config.eps, "bias": config.bias}
    blocks = []
    for _ in range(config.layers):
        mixer = _mixer(config, causal)
        feed_forward = FeedForward(
            width, config.hidden, activation=config.activation, bias=config.bias, dropout=config.dropout
        )
        blocks.append(Block(mixer, feed_forward, kind=config.norm_kind, dropout=config.dropout, **norm))
    return [*positions, *drop, *blocks, make_norm(config.norm_kind, width, **norm)]


def _mixer(config: LanguageConfig, causal: bool = True) -> AnyLayer:
    width, heads = config.width, config.heads
    if is_own(config.family):
        return make_own(config.family, width)
    if config.family == "window":
        return Window(width, config.order, hidden=config.hidden)
    if config.family in RECURRENT:
        return RECURRENT[config.family](width, width)
    if config.family == "transformer":
        return SelfAttention(
            width,
            heads,
            causal=causal,
            window=config.window,
            kv_heads=config.kv_heads,
            positions="rotary" if config.max_length is None else None,
            rotary_base=config.rotary_base,
            bias=config.bias,
            dropout=config.dropout,
        )
    # A sum has no order: the convolution shows the neighbours. An endless sum outweighs recent steps: it decays.
    neighbours = Convolution(width, config.convolution)
    if config.family == "linear-attention":
        return Stack(neighbours, LinearAttention(width, heads, decay=True))
    kind = TTTLinear if config.family == "ttt-linear" else TTTMLP
    switches = {name: getattr(config, name) for name in ("gate", "post_norm", "learned_share", "inner_bias")}
    return Stack(neighbours, kind(width, heads, mini_batch=config.mini_batch, rotary=True, **switches))


def initialise(body: nn.Module, layers: int) -> None:
    """Draw weights from N(0, 0.02²), those before a residual connection divided by √(2 · layers), as GPT-2 does."""
    for name, module in body.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            is_residual = name.endswith((".out", "feed_forward.down"))
            nn.init.normal_(module.weight, std=0.02 / math.sqrt(2 * layers) if is_residual else 0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
