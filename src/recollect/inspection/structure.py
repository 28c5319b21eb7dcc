"""What a model consists of around its remembering layers: how a source enters, and the parts of a Transformer.

    {"context": "first state", "attention": ["SelfAttention", …],
     "decoder": {"embedding": "Embedding", "positions": "sinusoidal", "first_norm": None, "last_norm": "LayerNorm",
                 "blocks": 2, "norm": "pre", "norm_kind": "LayerNorm", "cross": False, "output": 65, …}}

`context`: where a decoder reads its source: in its "first state", as one vector at "every step", or by "attention
before the step", "after the step" or "in every block". The parts of a side, "encoder" or "decoder", are there where it
has blocks with self-attention; a model without a source has one side, the decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from recollect.core.compose import Repeated
from recollect.core.types import JsonObject
from recollect.core.validate import ContractError
from recollect.layers.attention.self_attention import Attention
from recollect.layers.block import Block
from recollect.layers.decoder_block import DecoderBlock
from recollect.layers.pointwise import Embedding, LayerNorm, Linear, RMSNorm
from recollect.layers.positions import Positions
from recollect.models.attentive import BahdanauDecoder, LuongDecoder
from recollect.models.conditional import ConditionalModel
from recollect.models.decoders import ContextDecoder, StateDecoder
from recollect.models.transformer import TransformerDecoder

CONTEXTS: dict[type[nn.Module], str] = {
    StateDecoder: "first state",
    ContextDecoder: "every step",
    BahdanauDecoder: "attention before the step",
    LuongDecoder: "attention after the step",
    TransformerDecoder: "attention in every block",
}
FAMILY = ("recollect.layers.attention.", "recollect.layers.pools")


def structure_of(model: nn.Module) -> JsonObject:
    """Return a model's structure as plain data; what it does not have is absent."""
    attending = [one for one in model.modules() if type(one).__module__.startswith(FAMILY)]
    kinds = [type(one).__name__ for one in attending]
    found: JsonObject = {"attention": list(dict.fromkeys(kinds))}
    sides: dict[str, nn.Module] = {"decoder": model}
    if isinstance(model, ConditionalModel):
        sides = {name: getattr(model, name) for name in ("encoder", "decoder")}
        context = next((name for kind, name in CONTEXTS.items() if isinstance(model.decoder, kind)), None)
        found |= {} if context is None else {"context": context}
    for name, side in sides.items():
        parts = _side(side)
        if parts is not None:
            found[name] = parts | (_above(model) if name == "decoder" else {})
    return found


def _side(side: nn.Module) -> JsonObject | None:
    """Return the parts of one side; None where it has no blocks with self-attention."""
    blocks = [(path, block, times) for path, block, times in _blocks(side) if isinstance(block.mixer, Attention)]
    if not blocks:
        return None
    _, first, _ = blocks[0]
    outside = list(_outside(side))
    at = next(number for number, (path, _) in enumerate(outside) if path == blocks[0][0])
    before, after = [one for _, one in outside[:at]], [one for _, one in outside[at:]]
    maps = [one for one in before if isinstance(one, Embedding | Linear)]
    positions = next((one for one in before if isinstance(one, Positions)), None)
    return {
        "embedding": type(maps[0]).__name__ if maps else None,
        "segments": isinstance(getattr(side, "segment", None), nn.Embedding),
        "widened": len(maps) > 1,  # by a map to the width of the blocks
        "positions": None if positions is None else positions.kind,
        "first_norm": _norm(before),
        "last_norm": _norm(after),
        "blocks": sum(times for _, _, times in blocks),
        "shared": any(times > 1 for _, _, times in blocks),
        "norm": first.norm,
        "norm_kind": type(first.mixer_norm).__name__,
        "activation": first.feed_forward.activation,
        "cross": isinstance(first, DecoderBlock),
    }


def _blocks(side: nn.Module) -> Iterator[tuple[str, Any, int]]:
    """Return path, block and how often it is applied, in the order of the modules."""
    times = {f"{path}.layer": one.times for path, one in side.named_modules() if isinstance(one, Repeated)}
    for path, one in side.named_modules():
        if isinstance(one, Block | DecoderBlock):
            yield path, one, times.get(path, 1)


def _outside(side: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return the modules that are in no block, and the blocks themselves."""
    within = ""
    for path, one in side.named_modules():
        if within and path.startswith(within):
            continue
        if isinstance(one, Block | DecoderBlock):
            within = f"{path}."
        yield path, one


def _norm(modules: list[nn.Module]) -> str | None:
    found = next((one for one in modules if isinstance(one, LayerNorm | RMSNorm)), None)
    return None if found is None else type(found).__name__


def _above(model: nn.Module) -> JsonObject:
    """Return what is above the blocks: a pool of the steps, a transform, and how many numbers the last map has."""
    pooling = getattr(model, "pooling", None)
    found: JsonObject = {"pooling": pooling if isinstance(pooling, str) else None}
    found["transform"] = getattr(model, "transform", None) is not None
    try:
        head = getattr(model, "head", None)
    except ContractError:  # a model without its head
        head = None
    found["output"] = head.out_features if isinstance(head, nn.Linear) else None
    return found
