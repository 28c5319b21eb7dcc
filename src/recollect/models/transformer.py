"""The Transformer of Vaswani et al. (2017): attention in the encoder, in the decoder, and between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Layers, Memory
from recollect.core.validate import ContractError
from recollect.layers.attention.cross_attention import CrossAttention
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.block import Block
from recollect.layers.decoder_block import DecoderBlock
from recollect.layers.pointwise import Dropout, Embedding, FeedForward, LayerNorm, Linear
from recollect.layers.positions import Positions
from recollect.models.decoders import Decoder

if TYPE_CHECKING:
    from recollect.models.translation import TranslationConfig


class ScaledEmbedding(Embedding):
    """√D times a vector for each symbol (Vaswani et al. 2017, section 3.4): of the scale of the added positions."""

    def map(self, x: Tensor) -> Tensor:
        """Return the vectors times √D."""
        return self.table(x) * math.sqrt(self.width_out)


class TransformerEncoder(SequenceLayer[Layers]):
    """Embedding, sinusoidal positions, bidirectional blocks: source ids (B, S), or frames (B, S, E), to features.

    With pre-norm a last norm follows, as in Xiong et al. 2020; post-norm, as published, ends with one anyway.
    """

    def __init__(self, embedding: Embedding | Linear, blocks: Sequence[Block[Memory]], dropout: float) -> None:
        super().__init__()
        self.width = embedding.width
        self.width_out = embedding.width_out
        if isinstance(embedding, Embedding):
            self.vocab_size = embedding.vocab_size
        self.embedding = embedding
        self.body = _body(blocks, dropout)

    @property
    def streams(self) -> bool:
        """Whether a source may be read in chunks: no, every step attends to the whole source."""
        return False

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Layers:
        """Return the initial memory of the body."""
        return self.body.initial_memory(batch_size, like)

    def read(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Read the whole source."""
        return self.body(self.embedding.map(x), memory, valid=valid)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the body checks it


class TransformerDecoder(Decoder[Layers]):
    """Embedding, sinusoidal positions, `DecoderBlock`s and a map to the vocabulary: target ids to logits."""

    growth = "linear"

    def __init__(self, embedding: Embedding, blocks: Sequence[DecoderBlock], dropout: float) -> None:
        super().__init__(embedding, embedding.width_out, dropout)
        self.body = _body(blocks, dropout)

    def begin(self, features: Tensor, states: Layers, valid: Tensor) -> Layers:
        """Return the first memory: every block's keys and values of the source."""
        memories: list[Memory] = []
        for layer in self.body:
            if isinstance(layer, DecoderBlock):
                memories.append(layer.remember(features, valid))
            else:
                memories.append(layer.initial_memory(len(features), like=features))
        return Layers(layers=tuple(memories))

    def features(self, x: Tensor, memory: Layers, valid: Tensor | None) -> tuple[Tensor, Layers]:
        """Apply the blocks: attention to the target and to the source."""
        return self.body(self.embedding.map(x), memory, valid=valid)

    def _check_memory(self, memory: Layers, x: Tensor) -> None:
        pass  # the body checks it


def _body(blocks: Sequence[Block[Memory]] | Sequence[DecoderBlock], dropout: float) -> Stack:
    width = blocks[0].width_out
    drop = [Dropout(width, dropout)] if dropout else []
    last = [LayerNorm(width)] if blocks[0].norm == "pre" else []
    return Stack(Positions(width), *drop, *blocks, *last)


def build_transformer(
    config: TranslationConfig, embeddings: tuple[Embedding | Linear, Embedding]
) -> tuple[TransformerEncoder, TransformerDecoder]:
    """Return a Transformer's encoder and decoder, initialised."""
    if config.layers < 1:
        raise ContractError("layers", config.layers, "at least 1")
    blocks = []
    for _ in range(config.layers):
        attention = SelfAttention(config.width, config.heads, causal=False, dropout=config.dropout)
        blocks.append(Block(attention, _feed_forward(config), norm=config.norm, dropout=config.dropout))
    decoder = _build_decoder(config, embeddings[1])
    encoder = TransformerEncoder(embeddings[0], blocks, config.dropout)
    begin_evenly(encoder, decoder)
    return encoder, decoder


def build_transformer_decoder(config: TranslationConfig, embedding: Embedding) -> TransformerDecoder:
    """Return a Transformer's decoder alone, initialised: for an encoder that is trained already."""
    decoder = _build_decoder(config, embedding)
    begin_evenly(decoder)
    return decoder


def _build_decoder(config: TranslationConfig, embedding: Embedding) -> TransformerDecoder:
    width, heads, drop = config.width, config.heads, config.dropout
    blocks = []
    for _ in range(config.layers):
        attention = SelfAttention(width, heads, dropout=drop)
        across = CrossAttention(width, heads, dropout=drop)
        blocks.append(DecoderBlock(attention, across, _feed_forward(config), norm=config.norm, dropout=drop))
    return TransformerDecoder(embedding, blocks, drop)


def _feed_forward(config: TranslationConfig) -> FeedForward:
    return FeedForward(config.width, config.hidden, activation=config.activation, dropout=config.dropout)


def begin_evenly(*parts: nn.Module) -> None:
    """Draw linear maps as Glorot & Bengio (2010), embeddings from N(0, 1/D), so that √D times them has variance 1."""
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
