"""The translator: from one sequence to another, for every encoder–decoder family of the line.

    memory = model.remember(source, source_valid)
    logits, memory = model(ids, memory)

The encoder computes the decoder's first memory. After that a translator reads its target as a language model reads
text: in chunks of any length, with the same generation, search and inspection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from recollect.core.errors import check_choice
from recollect.core.memory import Memory
from recollect.core.settings import setting
from recollect.core.types import AnyLayer, JsonMapping, JsonObject
from recollect.core.validate import ContractError
from recollect.layers.attention.alignment import make_alignment
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import SCORES, make_score
from recollect.layers.pointwise import Embedding, Linear
from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.lstm import LSTM
from recollect.layers.recurrent.recurrence import AnyRecurrence
from recollect.layers.recurrent.torch_bridge import RecurrentStack
from recollect.models.attentive import BahdanauDecoder, LuongDecoder
from recollect.models.conditional import ConditionalModel
from recollect.models.decoders import ContextDecoder, Decoder, StateDecoder
from recollect.models.encoders import CONTEXTS, InheritedEncoder, Pooling, RecurrentEncoder
from recollect.models.inherited import Trained, body_of, build_body, saved_body
from recollect.models.masked import BOTH_WAYS
from recollect.models.stages import copy_parameters, stages_of
from recollect.models.transformer import ScaledEmbedding, build_transformer, build_transformer_decoder

CELLS: dict[str, type[AnyRecurrence]] = {"gru": GRU, "lstm": LSTM}
USUAL_CELL = {"sutskever": "lstm", "cho": "gru", "static": "gru", "bahdanau": "gru", "luong": "lstm"}
USUAL_SCORE = {"bahdanau": "additive", "luong": "general"}
FAMILIES = (*USUAL_CELL, "transformer")
ALIGNMENTS = ("soft", "hard", "local-monotonic", "local-predictive")
USED_BY: dict[str, tuple[str, ...]] = {  # the settings that a user may choose, and the families that use them
    "width": FAMILIES,
    "hidden": FAMILIES,
    "layers": FAMILIES,
    "dropout": FAMILIES,
    "tied": FAMILIES,
    "heads": ("transformer",),
    "norm": ("transformer",),
    "activation": ("transformer",),
    "cell": tuple(USUAL_CELL),
    "reset": tuple(USUAL_CELL),
    "reversed_source": ("sutskever", "cho", "static", "luong"),
    "context": ("static",),
    "score": tuple(USUAL_SCORE),
    "alignment": tuple(USUAL_SCORE),
    "window": tuple(USUAL_SCORE),
    "input_feeding": ("luong",),
    "maxout": ("cho", "static", "bahdanau"),
}

# the settings of a decoder, which may be chosen where the encoder is a trained model
INHERITED: tuple[str, ...] = (
    "dropout",
    "heads",
    "norm",
    "activation",
    "tied",
    "context",
    "score",
    "alignment",
    "window",
)
INHERITED += ("input_feeding", "maxout")


def settings_of(family: str) -> tuple[str, ...]:
    """Return the names of the settings that a family uses."""
    return tuple(name for name, families in USED_BY.items() if family in families)


@dataclass(frozen=True)
class TranslationConfig:
    """The config of a translator; each family uses some of the settings.

    "sutskever":   the source is the decoder's first state (Sutskever et al. 2014); LSTMs unless `cell` is given
    "cho":         one vector c = tanh(V h_N), in the first state, every step and the output (Cho et al. 2014)
    "static":      the same, with c computed as `context`
    "bahdanau":    attention to a bidirectional encoder before every step (Bahdanau et al. 2015)
    "luong":       attention after every step, whose result is fed into the next (Luong et al. 2015)
    "transformer": attention only (Vaswani et al. 2017)

    >>> config = rc.TranslationConfig("bahdanau", source_vocab=50, target_vocab=60, width=16)
    >>> rc.Translator(config).width_out
    60
    """

    family: str
    source_vocab: int
    target_vocab: int
    width: int = setting(128, least=1, help="of the embeddings; transformer: of everything")
    hidden: int | None = setting(None, least=1, help="of the states, or of the feed-forward network; None: fitted")
    layers: int = setting(1, least=1, most=1000)
    heads: int = setting(4, least=1, most=4096, help="transformer")
    dropout: float = setting(0.0, least=0.0, below=1.0)
    cell: Literal["gru", "lstm"] | None = setting(None, help="recurrent families; None: as published")
    reset: Literal["before", "after"] = setting("after", help="GRU: 'before' is Cho's form, without fused kernels")
    reversed_source: bool = setting(False, help="sutskever, cho, static, luong: read each source from its end")
    context: str = setting("last", choices=CONTEXTS, help="static: last, projected, mean, max or attention")
    score: str | None = setting(None, choices=tuple(SCORES), help="bahdanau, luong; None: additive, general")
    alignment: str = setting("soft", choices=ALIGNMENTS, help="bahdanau, luong: which steps are attended to")
    window: int = setting(10, least=1, help="of the local alignments: steps to each side")
    input_feeding: bool = setting(True, help="luong")
    maxout: bool = setting(False, help="cho, static, bahdanau: in the output, in place of tanh")
    norm: Literal["pre", "post"] = setting("post", help="transformer")
    activation: Literal["relu", "gelu", "gelu_tanh", "swiglu"] = setting("relu", help="transformer")
    tied: bool = setting(False, help="target embedding and output share their weights")
    shared: bool = setting(False, help="source and target have one vocabulary, and one embedding")
    frames: int = 0  # width of vectors that sources consist of in place of ids; 0: ids
    body: JsonObject | None = None  # the config of a trained model whose layers are the encoder; None: by the settings

    def __post_init__(self) -> None:
        check_choice("family", self.family, FAMILIES)
        check_choice("context", self.context, CONTEXTS)
        check_choice("alignment", self.alignment, ALIGNMENTS)
        if self.cell is not None:
            check_choice("cell", self.cell, tuple(CELLS))
        if self.shared and self.source_vocab != self.target_vocab:
            got = f"True with vocabularies of {self.source_vocab} and {self.target_vocab}"
            raise ContractError("shared", got, "one vocabulary for both sides")


class Translator(ConditionalModel):
    """Any family as a model of targets given sources: target ids (B, T) to logits (B, T, V).

    >>> import torch
    >>> model = Translator("luong", source_vocab=20, target_vocab=30, width=16)
    >>> memory = model.remember(torch.tensor([[1, 2, 3]]))
    >>> logits, memory = model(torch.tensor([[4, 5]]), memory)
    >>> logits.shape
    torch.Size([1, 2, 30])
    """

    def __init__(
        self,
        config: TranslationConfig | str,
        source_vocab: int | None = None,
        target_vocab: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if isinstance(config, str):
            if source_vocab is None or target_vocab is None:
                raise ContractError("source_vocab, target_vocab", None, "the numbers of symbols of both sides")
            config = TranslationConfig(config, source_vocab, target_vocab, **options)
        self.config = config
        self.encoder, self.decoder = build_parts(config)
        self.width = None
        self.width_out = self.vocab_size = config.target_vocab
        self.growth = self.decoder.growth
        if config.tied:
            out = self.decoder.out
            table = self.decoder.embedding.table
            if out.weight.shape != table.weight.shape:
                got = f"True with an output of width {out.in_features}"
                raise ContractError("tied", got, f"hidden={table.embedding_dim}, the width of the embedding")
            out.weight = table.weight

    def remember(self, source: Tensor, valid: Tensor | None = None) -> Memory:
        """Return the decoder's first memory of source ids (B, S), or frames (B, S, E); `valid` (B, S) are real."""
        features, states = self.encoder(source, valid=valid)
        if valid is None:
            valid = torch.ones(source.shape[:2], dtype=torch.bool, device=source.device)
        return self.decoder.begin(features, states, valid)

    def adopt(self, parent: Trained) -> None:
        """Copy the weights of a trained model into the encoder; the decoder keeps its new ones."""
        assert isinstance(self.encoder, InheritedEncoder)
        copy_parameters(body_of(parent), (self.encoder.embedding, self.encoder.body))

    def stages(self) -> list[list[nn.Module]]:
        """Return the parts of an encoder that was trained before, from the bottom to the top."""
        assert isinstance(self.encoder, InheritedEncoder)
        return stages_of(self.encoder.embedding, self.encoder.body)


AnyDecoder: TypeAlias = Decoder[Any]  # a decoder, whatever its memory


def build_parts(config: TranslationConfig) -> tuple[AnyLayer, AnyDecoder]:
    """Return a family's encoder and decoder."""
    kind = ScaledEmbedding if config.family == "transformer" else Embedding
    if config.body is not None:
        return _build_heir(config, kind(config.target_vocab, config.width))
    source = Linear(config.frames, config.width) if config.frames else kind(config.source_vocab, config.width)
    is_shared = config.shared and isinstance(source, Embedding)
    target = source if is_shared else kind(config.target_vocab, config.width)
    assert isinstance(target, Embedding)
    if config.family == "transformer":
        return build_transformer(config, (source, target))
    is_bidirectional = config.family == "bahdanau"
    cells = _stack(config, config.width, bidirectional=is_bidirectional)
    backwards = config.reversed_source and not is_bidirectional
    encoder = RecurrentEncoder(source, cells, backwards=backwards, dropout=config.dropout)
    return encoder, _recurrent_decoder(config, target, encoder.width_out)


def _build_heir(config: TranslationConfig, target: Embedding) -> tuple[AnyLayer, AnyDecoder]:
    assert config.body is not None
    encoder = InheritedEncoder(*build_body(config.body))
    if config.family == "transformer":
        return encoder, build_transformer_decoder(config, target)
    return encoder, _recurrent_decoder(config, target, encoder.width_out)


def heirs_of(model: Trained) -> tuple[str, ...]:
    """Return the families whose decoder fits a trained model as the encoder, the usual one first.

    One that is recurrent in one direction hands over its states, as these families expect; in both directions, the
    features and the state of the backward half. All others have a feature of each step, to be attended to.
    """
    family = model.config.family
    if family in CELLS:
        return ("luong", "sutskever", "cho", "static")
    if BOTH_WAYS.get(family) in CELLS:
        return ("bahdanau",)
    return () if family in ("rnn", *BOTH_WAYS) else ("transformer",)


def inherited_config(model: Trained, family: str, target_vocab: int, settings: JsonMapping) -> TranslationConfig:
    """Return the config of a translator whose encoder is a trained model's body; the decoder is as wide and as deep."""
    config = model.config
    own: JsonObject = {"width": config.width, "layers": config.layers, "heads": math.gcd(config.heads, config.width)}
    if family != "transformer":
        own |= {"cell": BOTH_WAYS.get(config.family, config.family)}
        own |= {"hidden": config.hidden if config.family in BOTH_WAYS else None}
    body = saved_body(model, settings.get("dropout"))
    own |= {"dropout": body["dropout"], "norm": "pre", "input_feeding": False, "body": body, **settings}
    return TranslationConfig(family, model.vocab_size, target_vocab, **own)


def _recurrent_decoder(config: TranslationConfig, embedding: Embedding, context: int) -> AnyDecoder:
    """Return a family's decoder of a source of features as wide as `context`."""
    width, dropout = config.width, config.dropout
    if config.family == "sutskever":
        return StateDecoder(embedding, _stack(config, width), dropout=dropout)
    if config.family in ("cho", "static"):
        pooling = Pooling("projected" if config.family == "cho" else config.context, context)
        cells = _stack(config, width + context)
        return ContextDecoder(embedding, cells, pooling, maxout=config.maxout, dropout=dropout)
    if config.family == "bahdanau":
        cells = _stack(config, width + context)
        attend = _attend(config, cells.width_out, context)
        return BahdanauDecoder(embedding, cells, attend, maxout=config.maxout, dropout=dropout)
    cells = _stack(config, width + (context if config.input_feeding else 0))
    attend = _attend(config, cells.width_out, context)
    return LuongDecoder(embedding, cells, attend, feeding=config.input_feeding, dropout=dropout)


def _stack(config: TranslationConfig, width: int, *, bidirectional: bool = False) -> RecurrentStack:
    kind = CELLS[config.cell or USUAL_CELL[config.family]]
    options: dict[str, Any] = {"reset": config.reset} if kind is GRU else {}
    hidden = config.hidden or config.width
    return kind.stack(width, hidden, config.layers, bidirectional=bidirectional, dropout=config.dropout, **options)


def _attend(config: TranslationConfig, query_width: int, key_width: int) -> Attend:
    options: dict[str, dict[str, Any]] = {
        "soft": {},
        "hard": {"estimator": "straight-through"},  # needs only the loss
        "local-monotonic": {"window": config.window},
        "local-predictive": {"query_width": query_width, "window": config.window},
    }
    score = make_score(config.score or USUAL_SCORE[config.family], query_width, key_width)
    return Attend(score, make_alignment(config.alignment, **options[config.alignment]))
