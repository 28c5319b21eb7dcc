"""What models with a source share: an encoder writes the decoder's memory, and the decoder reads from there on."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from recollect.core.layer import SequenceLayer
from recollect.core.memory import Memory
from recollect.core.validate import ContractError, fill_invalid
from recollect.models.decoders import Decoder


class ConditionalModel(SequenceLayer[Memory]):
    """Target ids (B, T) to logits (B, T, V), given the memory that `remember` writes of a source."""

    decoder: Decoder[Any]
    carries = False  # every target begins from its own source

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> Memory:
        """Raise a ContractError: there is no memory without a source."""
        raise ContractError("memory", "None", "the memory of a source: model.remember(source, valid)")

    def read(self, x: Tensor, memory: Memory, valid: Tensor | None) -> tuple[Tensor, Memory]:
        """Return the logits of the symbol after each target id."""
        return self.decoder(x, memory, valid=valid)

    def features(self, x: Tensor, memory: Memory, *, valid: Tensor | None = None) -> tuple[Tensor, Memory]:
        """Return the inputs of the head (B, T, D), and the memory after: `model.head(features)` are the logits."""
        hidden, memory = self.decoder.features(self.decoder.enter(x, valid), memory, valid)
        return fill_invalid(hidden, valid), memory

    @property
    def head(self) -> nn.Linear:
        """The map from features to logits."""
        return self.decoder.out

    def replace_head(self, layer: nn.Linear) -> None:
        """Set another map, to change what is predicted; nn.Module lets no property be assigned a module."""
        self.decoder.out = layer
        self.width_out = self.decoder.width_out = layer.out_features

    def _check_memory(self, memory: Memory, x: Tensor) -> None:
        pass  # the decoder checks it
