"""A model's parameters in two parts: its body, and what grows with the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from recollect.core.validate import ContractError
from recollect.layers.pointwise import Embedding


@dataclass(frozen=True)
class Parameters:
    """The numbers of parameters; a tensor that is shared, as by tied weights, is counted once."""

    body: int
    vocabulary: int  # in embeddings and the map to the output

    @property
    def total(self) -> int:
        """The number of all parameters."""
        return self.body + self.vocabulary

    def __str__(self) -> str:
        return f"{self.body:,} parameters in the body, {self.vocabulary:,} in embeddings and output"


def count_apart(model: nn.Module) -> Parameters:
    """Return the numbers of a model's parameters; `model.head`, where there is one, is the map to the output."""
    tables = [module for module in model.modules() if isinstance(module, Embedding)]
    try:
        head = getattr(model, "head", None)
    except ContractError:  # a model that counts
        head = None
    maps = [*tables, head] if isinstance(head, nn.Module) else tables
    of_vocabulary = {id(p) for module in maps for p in module.parameters()}
    parameters = list(model.parameters())
    vocabulary = sum(p.numel() for p in parameters if id(p) in of_vocabulary)
    return Parameters(sum(p.numel() for p in parameters) - vocabulary, vocabulary)
