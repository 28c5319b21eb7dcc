"""What the formats of Hugging Face share: the protocol of one, and the words of their configs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

from torch import nn

from recollect.core.serialize import FileError
from recollect.core.types import JsonMapping, JsonObject
from recollect.pretrained.entries import Entry

ACTIVATIONS = {  # of Hugging Face, and ours
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}

OTHER_KIND = "it is no"  # how the refusal of another kind of model begins
Copies: TypeAlias = tuple[tuple[str, str], ...]


class Format(Protocol):
    """One architecture of Hugging Face: its config and its tensors, and ours."""

    model_type: str  # in config.json
    prefix: str  # of the base model's tensors; a checkpoint of the base model alone lacks it
    ignored: str  # a pattern of tensors that hold nothing to be loaded: masks and counters
    copies: Copies  # tensors that may be saved twice: the copy, and the original

    def read(self, config: JsonMapping, names: Iterable[str]) -> Any:
        """Return our config, given theirs and the names of the checkpoint's tensors."""
        ...

    def build(self, config: Any) -> nn.Module:
        """Return our model with new weights."""
        ...

    def entries(self, model: Any) -> list[Entry]:
        """Return how our parameters correspond to their tensors."""
        ...

    def refusals(self, model: nn.Module) -> list[str]:
        """Return why a model of ours cannot be written in this format, nothing where it can."""
        ...

    def write(self, model: Any) -> JsonObject:
        """Return their config of a model of ours."""
        ...


def required(config: JsonMapping, *names: str) -> Any:
    """Return the first of some settings that a config has; raise a `FileError` that names them."""
    for name in names:
        if config.get(name) is not None:
            return config[name]
    raise FileError(f"config.json: {' or '.join(names)} is missing; expected the config that belongs to the weights")


def refuse(config: JsonMapping, what: str, *, unless: tuple[Any, ...]) -> None:
    """Raise a `FileError` for a setting whose value is none of those that are known here."""
    value = config.get(what, unless[0])
    if value not in unless:
        known = " or ".join(repr(one) for one in unless)
        raise FileError(f"config.json: {what}: got {value!r}, expected {known}: recollect has no such model")


def activation_of(config: JsonMapping, name: str, default: str) -> str:
    """Return our name of an activation."""
    given = config.get(name, default)
    if given not in ACTIVATIONS:
        raise FileError(f"config.json: {name}: got {given!r}, expected one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[given]
