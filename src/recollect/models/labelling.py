"""What models that label have in common: an embedding, an encoder, features and a head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.types import AnyLayer
from recollect.core.validate import fill_invalid
from recollect.layers.pointwise import Pointwise
from recollect.models.encoding import EncoderConfig, build_encoder, encoder_of
from recollect.models.inherited import Trained, body_of
from recollect.models.stages import copy_parameters, stages_of


class LabelModel(SequenceLayer[Memory]):
    """Base: ids (B, T), words with letters (B, T, 1 + L), or vectors (B, T, D), to a score of each label (B, T, C).

    `model.head(features)` are the scores, as in a language model; another head, or an encoder that was trained as a
    language model, can be set.
    """

    carries = False  # every example begins from nothing

    def __init__(self, encoder: AnyLayer | EncoderConfig, labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = encoder if isinstance(encoder, EncoderConfig) else None
        made = build_encoder(encoder) if isinstance(encoder, EncoderConfig) else encoder_of(encoder)
        self.embedding: Pointwise | None = made[0]
        self.encoder: AnyLayer = made[1]
        self.width = self.encoder.width if self.embedding is None else self.embedding.width
        if self.width is None:
            assert self.embedding is not None  # what reads ids begins with one
            self.vocab_size = self.embedding.vocab_size
        self.width_out = labels
        self.growth = self.encoder.growth
        self.dropout = dropout
        self.word_dropout = 0.0 if self.config is None else self.config.word_dropout
        self.unknown = self.vocab_size - 1 if self.width is None else 0
        if self.config is not None and self.config.unknown is not None:
            self.unknown = self.config.unknown
        self.out = nn.Linear(self.encoder.width_out, labels)

    @property
    def streams(self) -> bool:
        """Whether a sequence may be read in chunks: as the encoder's."""
        return self.encoder.streams

    @property
    def head(self) -> nn.Linear:
        """The map from features to scores."""
        return self.out

    def replace_head(self, layer: nn.Linear) -> None:
        """Set another map, for other labels."""
        self.out = layer
        self.width_out = layer.out_features

    def adopt(self, parent: Trained) -> None:
        """Copy the weights of a trained model's body; the head keeps its new ones."""
        embedding = self.inherited_embedding()
        assert embedding is not None
        copy_parameters(body_of(parent), (embedding, self.encoder))

    def stages(self) -> list[list[nn.Module]]:
        """Return the parts below the head, from the bottom to the top: what is unfrozen and trained stage by stage."""
        layers = list(self.encoder) if isinstance(self.encoder, Stack) else [self.encoder]
        return stages_of(self.inherited_embedding() or nn.Identity(), layers)

    def inherited_embedding(self) -> Pointwise | None:
        """Return the embedding as a trained model has it, without what is added here; None: vectors are read."""
        return self.embedding

    def enter(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Check the inputs as the embedding does."""
        return super().enter(x, valid) if self.embedding is None else self.embedding.enter(x, valid)

    def embed(self, x: Tensor, valid: Tensor | None) -> Tensor:
        """Return the vectors of the inputs (B, T, D); in training some are read as unknown, or as zero."""
        if self.embedding is None:
            return x
        if self.training and self.word_dropout:
            is_hidden = torch.rand(x.shape[:2], device=x.device) < self.word_dropout
            if self.width is not None:
                return fill_invalid(self.embedding.map(x.masked_fill(is_hidden[..., None], 0.0)), valid)
            words = (x if x.dim() == 2 else x[..., 0]).masked_fill(is_hidden, self.unknown)
            x = words if x.dim() == 2 else torch.cat([words[..., None], x[..., 1:]], dim=-1)
        return fill_invalid(self.embedding.map(x), valid)

    def features(
        self, x: Tensor, memory: Memory | None = None, *, valid: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return the inputs of the head (B, T, D), and the memory after."""
        raise NotImplementedError

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the scores of the labels at every step."""
        found, memory = self.features(x, memory, valid=valid)
        return self.score(found), memory

    def score(self, features: Tensor) -> Tensor:
        """Return the head's scores; in training some features are dropped before it."""
        return self.out(F.dropout(features, self.dropout, self.training))

    def _check_memory(self, memory: Memory, x: Tensor) -> None:
        pass  # the encoder checks it
