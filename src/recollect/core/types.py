"""Types that many modules share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from typing_extensions import TypedDict

from recollect.core.layer import SequenceLayer

AnyLayer: TypeAlias = SequenceLayer[Any]  # a layer, whatever its memory
JsonObject: TypeAlias = dict[str, Any]  # an object as JSON holds it
JsonMapping: TypeAlias = Mapping[str, Any]  # one that is only read


class TensorOptions(TypedDict, total=False):
    """Where and in which dtype a module makes its parameters, as in torch.nn."""

    device: torch.device | str | int | None
    dtype: torch.dtype | None
