"""The log-probability that a model assigns to given ids."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.core.memory import Memory
from recollect.core.validate import ContractError, check_ids, check_prefix, check_valid
from recollect.generation.prefill import CHUNK, Model, check_table, full_precision, home, undisturbed


def score(
    model: Model,
    ids: Tensor,
    valid: Tensor | None = None,
    memory: Memory | None = None,
    *,
    begin: int | Tensor | None = None,
    logits: Tensor | None = None,
) -> Tensor:
    """Return log p(ids[t] | what came before), (B, T), zero where not valid; sum a row for log p of the whole.

    The first id is predicted from `begin`, one id or one per row (B,), read after `memory` where that is given; or from
    `logits` (B, V), the prediction of the model that returned `memory`. To score ids without either, pass their first
    as `begin`: score(model, ids[:, 1:], begin=ids[:, 0]).
    """
    if ids.dim() != 2 or ids.is_floating_point():
        raise ContractError("ids", f"shape {tuple(ids.shape)} of {ids.dtype}", "ids of shape (B, T)")
    if (begin is None) == (logits is None):
        raise ContractError(
            "begin, logits", "neither" if begin is None else "both", "one of them, to predict the first id from"
        )
    device = home(model, memory)
    ids = ids.long().to(device)
    if valid is not None:
        valid = valid.to(device)
        check_valid(valid, ids)
        check_prefix(valid)
        ids = ids.masked_fill(~valid, 0)
    check_ids(ids, model.width_out)
    if begin is not None and hasattr(model, "vocab_size"):
        check_ids(torch.as_tensor(begin), model.vocab_size, "begin")
    modules = list(model.modules())
    check_table(modules, memory, [ids.shape[1]] * len(ids) if valid is None else valid.sum(1).tolist(), 0)
    with undisturbed(modules):
        found = _scores(model, ids, valid, memory, begin, logits)
    return found if valid is None else found.masked_fill(~valid, 0)


def _scores(
    model: Model,
    ids: Tensor,
    valid: Tensor | None,
    memory: Memory | None,
    begin: int | Tensor | None,
    logits: Tensor | None,
) -> Tensor:
    """Read in chunks, so that the logits of all steps (B, T, V) are never held at once."""
    memory = memory.settled() if memory is not None else None  # a copy: reserved slots are written in place
    found = []
    if begin is not None:
        first = torch.as_tensor(begin, device=ids.device).long().expand(len(ids))[:, None]
        read = torch.cat([first, ids[:, :-1]], dim=1)[:, : ids.shape[1]]
        target = ids
        real = valid
    else:
        assert logits is not None
        found = [_logprobs_of(logits.to(ids.device)[:, None], ids[:, :1])]
        read = ids[:, :-1]
        target = ids[:, 1:]
        real = None if valid is None else valid[:, 1:]
    for start in range(0, read.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        y, memory = model(read[:, part], memory, valid=None if real is None else real[:, part])
        found.append(_logprobs_of(y, target[:, part]))
    return torch.cat(found, dim=1) if found else torch.zeros(ids.shape, device=ids.device)


def _logprobs_of(logits: Tensor, ids: Tensor) -> Tensor:
    """Return log p of ids (B, T) from logits (B, T or more, V)."""
    return full_precision(logits)[:, : ids.shape[1]].log_softmax(dim=-1).gather(-1, ids[..., None])[..., 0]
