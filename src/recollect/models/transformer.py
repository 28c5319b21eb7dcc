"""The Transformer of Vaswani et al. (2017): attention in the encoder, in the decoder, and between them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers
from recollect.core.validate import ContractError
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.decoder_block import DecoderBlock
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, LayerNorm
from recollect.layers.positions import Positions
from recollect.models.decoders import Decoder

if TYPE_CHECKING:
    from recollect.models.translation import TranslationConfig


class ScaledEmbedding(Embedding):
    """√D times a vector for each symbol (Vaswani et al. 2017, section 3.4): as large as the positions added to it."""

    def map(self, x: Tensor) -> Tensor:
        """Look the vectors up and enlarge them."""
        return self.table(x) * math.sqrt(self.width_out)


class TransformerEncoder(SequenceLayer[Layers]):
    """Embedding, sinusoidal positions, blocks in which every step looks at all: source ids to features (B, S, D).

    With pre-norm a last norm follows, as in Xiong et al. 2020; post-norm, as published, ends with one anyway.
    """

    def __init__(self, embedding: Embedding, blocks: list[Block[Any]], dropout: float) -> None:
        super().__init__()
        self.width, self.width_out, self.vocab_size = None, embedding.width_out, embedding.vocab_size
        self.embedding, self.body = embedding, _body(blocks, dropout)

    @property
    def streams(self) -> bool:
        """No: every step looks at the whole source."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """As the body."""
        return self.body.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Look at the whole source."""
        return self.body(self.embedding.map(x), memory, valid=valid)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the body checks it


class TransformerDecoder(Decoder[Layers]):
    """Embedding, sinusoidal positions, `DecoderBlock`s and a map to the vocabulary: target ids to logits."""

    growth = "linear"

    def __init__(self, embedding: Embedding, blocks: list[DecoderBlock], dropout: float) -> None:
        super().__init__(embedding, embedding.width_out, dropout)
        self.body = _body(blocks, dropout)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Layers:
        """Let every block write the source's keys and values."""
        return Layers(
            layers=tuple(
                layer.remember(features, valid)
                if isinstance(layer, DecoderBlock)
                else layer.initial_memory(len(features), like=features)
                for layer in self.body
            )
        )

    def features(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Look back and across."""
        return self.body(self.embedding.map(x), memory, valid=valid)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the body checks it


def _body(blocks: Any, dropout: float) -> Stack:
    width = blocks[0].width_out
    drop = [Dropout(width, dropout)] if dropout else []
    last = [LayerNorm(width)] if blocks[0].norm == "pre" else []
    return Stack(Positions(width), *drop, *blocks, *last)


def build_transformer(
    config: TranslationConfig, embeddings: tuple[Embedding, Embedding]
) -> tuple[TransformerEncoder, TransformerDecoder]:
    """Give a Transformer's encoder and decoder, with their first weights."""
    if config.depth < 1:
        raise ContractError("depth", config.depth, "at least 1")
    width, heads, drop = config.width, config.heads, config.dropout
    shape: dict[str, Any] = {"norm": config.norm, "dropout": drop}

    def attention(causal: bool) -> SelfAttention:
        return SelfAttention(width, heads, causal=causal, dropout=drop)

    def feed_forward() -> FeedForward:
        return FeedForward(width, config.hidden, activation=config.activation, dropout=drop)

    def across() -> CrossAttention:
        return CrossAttention(width, heads, dropout=drop)

    levels = range(config.depth)
    reading = [Block(attention(causal=False), feed_forward(), **shape) for _ in levels]
    saying = [DecoderBlock(attention(causal=True), across(), feed_forward(), **shape) for _ in levels]
    encoder = TransformerEncoder(embeddings[0], reading, drop)
    decoder = TransformerDecoder(embeddings[1], saying, drop)
    begin_evenly(encoder, decoder)
    return encoder, decoder


def begin_evenly(*parts: nn.Module) -> None:
    """Draw products by Glorot & Bengio (2010), embeddings from N(0, 1/D), so that √D times them has variance 1."""
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
