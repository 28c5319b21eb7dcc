"""The masked language model: each symbol sees the whole text, hidden ones are predicted (BERT, Devlin et al. 2019).

    x = norm(embedding + segment + position), mapped to the layers' width where that differs (ALBERT, Lan et al. 2020)
    blocks of self-attention to both sides; or, without positions, layers that are recurrent in both directions
    logits of every symbol: W norm(φ(V y + c)) + b, with W the embedding

It must be read at once (`streams` is False), since every step depends on later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from recollect.core.compose import Bidirectional, Repeated, Stack
from recollect.core.errors import check_choice
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers
from recollect.core.settings import CheckedSettings, setting
from recollect.core.types import AnyLayer
from recollect.core.validate import ContractError, fill_invalid
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, LayerNorm, Linear, activate
from recollect.layers.positions import Positions
from recollect.models.language import RECURRENT
from recollect.models.stages import copy_parameters, stages_of

BOTH_WAYS = {"birnn": "rnn", "bigru": "gru", "bilstm": "lstm"}
FAMILIES = (*BOTH_WAYS, "bert")
RECURRENT_USES = ("width", "layers", "hidden", "segments", "embedding", "activation", "eps", "dropout")


@dataclass(frozen=True)
class MaskedConfig(CheckedSettings):
    """The config of a masked language model.

    >>> config = rc.MaskedConfig(vocab_size=100, width=32)
    >>> rc.MaskedModel(config).vocab_size
    100
    """

    vocab_size: int = setting(30_522, least=1)
    width: int = setting(128, least=1)
    layers: int = setting(2, least=1, most=1000)
    heads: int = setting(4, least=1, most=4096)
    hidden: int | None = setting(
        None, least=1, help="of the feed-forward networks, None: 4 widths; of a recurrent direction, None: the width"
    )
    max_length: int = setting(512, least=1, most=10_000_000, help="a table of learned positions")
    segments: int = setting(2, least=1, help="how many texts an input may consist of, each with a vector of its own")
    embedding: int | None = setting(None, least=1, help="width of the embeddings, mapped to width; None: no map")
    shared: bool = setting(False, help="all layers have the same weights")
    activation: Literal["relu", "gelu", "gelu_tanh"] = setting("gelu", help="of feed-forward networks and head")
    norm: Literal["pre", "post"] = setting("post", help="norms before a block's layers, or after as in BERT")
    eps: float = setting(1e-12, above=0.0, help="ε of the norms")
    dropout: float = setting(0.1, least=0.0, below=1.0)
    masked: bool = setting(True, help="has a head that predicts symbols")
    pooled: bool = setting(False, help="has one vector for the whole text, of its first symbol")
    next_sentence: bool = setting(False, help="has a head that says whether the second text follows; needs pooled")
    family: str = "bert"
    families: ClassVar[tuple[str, ...]] = FAMILIES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("family", self.family, FAMILIES)
        if self.next_sentence and not self.pooled:
            raise ContractError("next_sentence", "True without pooled", "pooled=True: the head reads the pooled vector")


def masked_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a user may choose for a family."""
    if family in BOTH_WAYS:
        return RECURRENT_USES
    return (*RECURRENT_USES, "heads", "max_length", "shared", "norm")


class MaskedModel(SequenceLayer[Layers]):
    """BERT: ids (B, T) to logits of the symbol at each place (B, T, V), or without a head to features (B, T, D).

    The families birnn, bigru and bilstm have recurrent layers in both directions in place of the blocks.

    >>> model = rc.MaskedModel(vocab_size=100, width=32, pooled=True, next_sentence=True).eval()
    >>> ids = torch.tensor([[1, 2, 3, 4]])
    >>> logits, memory = model(ids)
    >>> y = model.encode(ids, segments=torch.tensor([[0, 0, 1, 1]]))
    >>> tuple(logits.shape), tuple(y.shape), tuple(model.follows(y).shape)
    ((1, 4, 100), (1, 4, 32), (1, 2))
    """

    def __init__(self, config: MaskedConfig | None = None, **options: Any) -> None:
        super().__init__()
        config = config or MaskedConfig(**options)
        self.config = config
        inner = config.embedding or config.width
        self.width = None
        self.vocab_size = config.vocab_size
        self.embedding = Embedding(config.vocab_size, inner)
        self.segment = nn.Embedding(config.segments, inner)
        self.body = _build_body(config, inner)
        self.growth = self.body.growth
        above = self.body.width_out
        self.pooler = nn.Linear(above, config.width) if config.pooled else None
        self.next_sentence = nn.Linear(config.width, 2) if config.next_sentence else None
        self.transform = PredictionTransform(config, above, inner) if config.masked else None
        self.out = nn.Linear(inner, config.vocab_size) if config.masked else None
        self.width_out = config.vocab_size if config.masked else above
        self._initialise()
        if self.out is not None:
            self.out.weight = self.embedding.table.weight

    def _initialise(self) -> None:
        """Draw weights from N(0, 0.02²), as BERT does; biases begin at 0."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)

    @property
    def streams(self) -> bool:
        """Whether a text may be read in chunks: no, every step depends on the whole text."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memory of the body."""
        return self.body.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Return the logits of every symbol; of a model without a head, the features."""
        y, memory = self.body(self._embed(x, None), memory, valid=valid)
        y = self._transformed(y)
        return y if self.out is None else self.out(y), memory

    def features(
        self, x: Tensor, memory: Layers | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Layers]:
        """Return the inputs of the head, and the memory after: `model.head(features)` are the logits."""
        y, memory = self.body(self._embed(self.enter(x, valid), None), memory, valid=valid)
        return fill_invalid(self._transformed(y), valid), memory

    def encode(self, ids: Tensor, *, valid: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the last layer's outputs (B, T, D); `segments` (B, T): which of an input's texts each id is of."""
        if segments is not None and segments.shape != ids.shape:
            raise ContractError("segments", f"shape {tuple(segments.shape)}", f"{tuple(ids.shape)}, the (B, T) of ids")
        y, _ = self.body(self._embed(self.enter(ids, valid), segments), valid=valid)
        return y

    def predict(self, encoded: Tensor) -> Tensor:
        """Return the logits (…, V) of outputs of `encode`, which may be some of its steps only."""
        return self.head(self._transformed(encoded))

    def pool(self, encoded: Tensor) -> Tensor:
        """Return one vector (B, D) for each text: tanh(W y_0 + b) of its first symbol, [CLS]."""
        if self.pooler is None:
            raise ContractError("pooled", "a model without it", "MaskedConfig(pooled=True)")
        return self.pooler(encoded[:, 0]).tanh()

    def follows(self, encoded: Tensor) -> Tensor:
        """Return two logits (B, 2) for each input: its second text follows the first; it is another text."""
        if self.next_sentence is None:
            raise ContractError("next_sentence", "a model without it", "MaskedConfig(pooled=True, next_sentence=True)")
        return self.next_sentence(self.pool(encoded))

    def adopt(self, parent: MaskedModel) -> None:
        """Copy the weights of a trained model, and of its heads those that both have."""
        copy_parameters(parent.parts(), self.parts())
        for name in ("pooler", "next_sentence", "transform", "out"):
            theirs, ours = getattr(parent, name), getattr(self, name)
            if theirs is not None and ours is not None:
                copy_parameters((theirs,), (ours,))

    def parts(self) -> tuple[nn.Module, ...]:
        """Return what is below the heads."""
        return self.embedding, self.segment, self.body

    def stages(self) -> list[list[nn.Module]]:
        """Return the parts below the heads, from the bottom to the top."""
        first, *others = stages_of(self.embedding, self.body)
        return [[*first, self.segment], *others]

    @property
    def head(self) -> nn.Linear:
        """The map from features to logits."""
        if self.out is None:
            raise ContractError("head", "a model without it", "MaskedConfig(masked=True)")
        return self.out

    def replace_head(self, layer: nn.Linear) -> None:
        """Set another map, to change what is predicted; nn.Module lets no property be assigned a module."""
        self.out = layer
        self.width_out = layer.out_features

    def _embed(self, ids: Tensor, segments: Tensor | None) -> Tensor:
        """Return the vectors of ids and of their segments, by default the first, without positions."""
        kinds = self.segment.weight[0] if segments is None else self.segment(segments)
        return self.embedding.map(ids) + kinds

    def _transformed(self, encoded: Tensor) -> Tensor:
        return encoded if self.transform is None else self.transform(encoded)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the body checks it


class PredictionTransform(nn.Module):
    """What BERT has between its layers and the map to the vocabulary: norm(φ(V y + c))."""

    def __init__(self, config: MaskedConfig, width: int, inner: int) -> None:
        super().__init__()
        self.activation = config.activation
        self.dense = nn.Linear(width, inner)
        self.norm = nn.LayerNorm(inner, eps=config.eps)

    def forward(self, y: Tensor) -> Tensor:
        """Return the inputs of the map to the vocabulary."""
        return self.norm(activate(self.dense(y), self.activation))


def _build_body(config: MaskedConfig, inner: int) -> Stack:
    """Return the layers above the embeddings: positions, norm, the map to the layers' width, blocks."""
    drop = [Dropout(inner, config.dropout)] if config.dropout else []
    wider = [] if config.embedding is None else [Linear(inner, config.width)]
    if config.family in BOTH_WAYS:
        return Stack(LayerNorm(inner, eps=config.eps), *drop, *wider, *_both_ways(config))
    blocks: list[AnyLayer]
    if config.shared:
        blocks = [Repeated(_block(config), config.layers)]
    else:
        blocks = [_block(config) for _ in range(config.layers)]
    last = [LayerNorm(config.width, eps=config.eps)] if config.norm == "pre" else []
    positions = Positions(inner, "learned", max_length=config.max_length)
    return Stack(positions, LayerNorm(inner, eps=config.eps), *drop, *wider, *blocks, *last)


def _both_ways(config: MaskedConfig) -> list[AnyLayer]:
    """Return recurrent layers in both directions, each with dropout after it."""
    cell = RECURRENT[BOTH_WAYS[config.family]]
    hidden = config.hidden or config.width
    width = config.width
    layers: list[AnyLayer] = []
    for _ in range(config.layers):
        layers.append(Bidirectional(cell(width, hidden), cell(width, hidden)))
        width = 2 * hidden
        layers += [Dropout(width, config.dropout)] if config.dropout else []
    return layers


def _block(config: MaskedConfig) -> Block[Any]:
    attention = SelfAttention(config.width, config.heads, causal=False, dropout=config.dropout)
    feed_forward = FeedForward(config.width, config.hidden, activation=config.activation)
    return Block(attention, feed_forward, norm=config.norm, eps=config.eps, dropout=config.dropout)
