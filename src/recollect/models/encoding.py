"""Encoders: from ids to a vector of every step, for models that label what they read.

Every family of the line that is trained, in one direction as in a language model and built by the same code, or in both
directions; and two that read no order at all. `EncoderConfig` extends a language model's config, so that the weights of
a trained language model fit an encoder of the same settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import nn

from recollect.core.compose import Bidirectional, Stack
from recollect.core.errors import is_own
from recollect.core.meta import on_meta
from recollect.core.settings import setting
from recollect.core.types import AnyLayer, JsonObject
from recollect.core.validate import ContractError
from recollect.layers.filters import Filters
from recollect.layers.ngram.window import Window
from recollect.layers.pointwise import Dropout, Embedding, Linear, Pointwise
from recollect.layers.spelling import SpelledEmbedding
from recollect.models.inherited import body_of, build_body
from recollect.models.language import (
    BLOCKS,
    LEARNED,
    OWN_USES,
    RECURRENT,
    USED_BY,
    LanguageConfig,
    LanguageModel,
    hidden_layers,
    initialise,
)
from recollect.models.masked import BOTH_WAYS, MaskedModel

ENCODERS = (*LEARNED[: LEARNED.index("lstm") + 1], *BOTH_WAYS, "cnn", *BLOCKS, "bert")
WITHOUT_WIDTH = {"majority": (), "bag-of-words": ("word_dropout",), "bag-of-ngrams": ()}
OF_THE_OUTPUT = ("tied", "head_bias")  # settings of a language model that an encoder does not have
SPELLED = 4  # one part in so many of a word's vector are its letters
WORD_START = 0.1  # standard deviation of new word vectors: rare words stay near zero and add little noise


@dataclass(frozen=True)
class EncoderConfig(LanguageConfig):
    """The config of an encoder: a language model's, the share of letters, and words that are hidden in training."""

    labels: int = 2
    letters: int = 0  # that occur; 0: words are read without their letters
    unknown: int | None = None  # the id that hidden words are read as; None: the last
    frames: int = 0  # width of vectors that are read in place of ids; 0: ids
    word_dropout: float = setting(
        0.0, least=0.0, below=1.0, help="share of words read as unknown in training, or of frames read as zero"
    )
    body: JsonObject | None = None  # the config of a trained model whose layers are the encoder; None: by the settings
    families: ClassVar[tuple[str, ...]] = ("majority", "per-word", *ENCODERS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels < 2:
            raise ContractError("labels", self.labels, "at least 2")


def encoder_settings(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family's encoder uses."""
    if family in WITHOUT_WIDTH:
        return WITHOUT_WIDTH[family]
    common = ("width", "dropout", "word_dropout")
    if family in (*BOTH_WAYS, "per-word", "cnn"):
        return (*common, "layers", *(() if family == "cnn" else ("hidden",)))
    if is_own(family):
        return (*common, *(name for name in OWN_USES if name not in (*common, *OF_THE_OUTPUT)))
    as_language = "transformer" if family == "bert" else family
    used = [name for name, families in USED_BY.items() if as_language in families and name not in OF_THE_OUTPUT]
    return tuple(dict.fromkeys([*common, *used]))


def build_encoder(config: EncoderConfig) -> tuple[Pointwise, Stack]:
    """Return a family's embedding, and its layers from vectors to vectors, initialised."""
    if config.body is not None:
        return build_body(config.body)
    embedding = _embedding(config)
    layers = Stack(*encoder_layers(config))
    if config.family in BLOCKS or config.family == "bert":
        initialise(nn.ModuleList([embedding, layers]), config.layers)
    elif config.start is not None:
        for p in layers.parameters():
            nn.init.uniform_(p, -config.start, config.start)
    return embedding, layers


def encoder_layers(config: EncoderConfig) -> list[AnyLayer]:
    """Return the layers above the embedding."""
    if config.family == "bert":
        return hidden_layers(replace(config, family="transformer"), causal=False)
    if config.family not in (*BOTH_WAYS, "cnn", "per-word"):
        return hidden_layers(config)
    width = config.width
    layers: list[AnyLayer] = [Dropout(width, config.dropout)] if config.dropout else []
    for _ in range(config.layers):
        layer = _two_sided(config, width)
        width = layer.width_out
        layers += [layer, *([Dropout(width, config.dropout)] if config.dropout else [])]
    return layers


def _two_sided(config: EncoderConfig, width: int) -> AnyLayer:
    if config.family == "cnn":
        return Filters(width, config.width)
    if config.family == "per-word":
        return Window(width, order=1, hidden=config.hidden)  # of the word itself
    cell = RECURRENT[BOTH_WAYS[config.family]]
    hidden = config.hidden or config.width
    return Bidirectional(cell(width, hidden), cell(width, hidden))


def _embedding(config: EncoderConfig) -> Pointwise:
    if config.frames:
        return Linear(config.frames, config.width)
    words: Embedding | SpelledEmbedding = Embedding(config.vocab_size, config.width)
    if config.letters:
        spelled = max(config.width // SPELLED, 1)
        words = SpelledEmbedding(config.vocab_size, config.width, letters=config.letters, width_spelled=spelled)
    nn.init.normal_(words.table.weight, std=WORD_START)
    return words


def encoder_of(model: AnyLayer) -> tuple[Pointwise | None, AnyLayer]:
    """Return a model's embedding (None: it reads vectors) and its layers from vectors to vectors.

    A language model, or a masked one, is taken without its heads; a stack that begins with an embedding is
    divided after it.
    """
    if isinstance(model, LanguageModel | MaskedModel):
        return body_of(model)
    if model.width is not None:
        return None, model
    first = model[0] if isinstance(model, Stack) and len(model) > 1 else None
    if not isinstance(first, Pointwise):
        raise ContractError("encoder", f"a {type(model).__name__} of ids", "a Stack that begins with an Embedding")
    assert isinstance(model, Stack)
    return first, model[1:]


def count_encoder_parameters(config: EncoderConfig) -> int:
    """Return the number of parameters of an encoder's layers, without embedding and output."""
    with on_meta():
        return sum(p.numel() for layer in encoder_layers(config) for p in layer.parameters())
