"""From logits to an id: filters, each a function from logits (B, V) to logits, and the draw.

A filter sets what it drops to −∞, so that the softmax of the result is renormalised over what is kept. At least the
likeliest id is always kept. Equal logits are treated alike or, where only some may be kept, lower ids are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from recollect.core.validate import ContractError
from recollect.generation.settings import Settings

COLD, COLDEST = 1e-6, 1e-30  # temperatures below which quotients overflow, and by which is divided at least


def scale_by_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Return logits / temperature (Ackley, Hinton & Sejnowski 1985): below 1 sharper, above 1 flatter."""
    return logits / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k likeliest ids (Fan et al. 2018), and all that equal the k-th."""
    kth = logits.topk(min(k, logits.shape[-1])).values[..., -1:]  # (B, 1)
    return logits.masked_fill(logits < kth, -torch.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the nucleus (Holtzman et al. 2020): the fewest likeliest ids whose probabilities sum to at least p."""
    ordered, index = logits.sort(dim=-1, descending=True, stable=True)
    cumulative = ordered.double().softmax(dim=-1).cumsum(dim=-1)  # (B, V)
    before = F.pad(cumulative[..., :-1], (1, 0))  # summed probability of the likelier ids
    dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, index, before >= p)
    return logits.masked_fill(dropped, -torch.inf)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep the ids at least p times as likely as the likeliest (Nguyen et al. 2024)."""
    probabilities = logits.softmax(dim=-1)
    dropped = probabilities < p * probabilities.amax(dim=-1, keepdim=True)
    return logits.masked_fill(dropped, -torch.inf)


def penalise_repetition(logits: Tensor, seen: Sequence[Tensor], penalty: float) -> Tensor:
    """Lower the logits (B, V) of the ids that each row has seen: x / θ where x > 0, x · θ where x < 0.

    Keskar et al. 2019 (CTRL), section 4.1, with the negative logits multiplied, as transformers'
    `RepetitionPenaltyLogitsProcessor` does: the paper's division would raise them. `seen` are ids of any shape, one
    tensor for each row; how often an id was seen does not matter.
    """
    penalised = torch.where(logits > 0, logits / penalty, logits * penalty)
    mask = torch.zeros_like(logits, dtype=torch.bool)
    for row, ids in zip(mask, seen, strict=True):
        row[ids.to(row.device)] = True
    return torch.where(mask, penalised, logits)


def prohibit(logits: Tensor, ids: list[int]) -> Tensor:
    """Return logits that are −∞ at some ids."""
    return logits.index_fill(-1, torch.tensor(ids, device=logits.device), -torch.inf) if ids else logits


def apply_filters(logits: Tensor, settings: Settings) -> Tensor:
    """Apply temperature, top-k, top-p and min-p, in this order."""
    temperature = settings.temperature
    if temperature < COLD:  # the quotients would overflow: the same probabilities from logits of which the largest is 0
        logits, temperature = logits - logits.amax(-1, keepdim=True), max(temperature, COLDEST)
    if temperature != 1:
        logits = scale_by_temperature(logits, temperature)
    if settings.top_k is not None:
        logits = keep_top_k(logits, settings.top_k)
    if settings.top_p is not None and settings.top_p < 1:
        logits = keep_top_p(logits, settings.top_p)
    if settings.min_p is not None:
        logits = keep_min_p(logits, settings.min_p)
    return logits


def likeliest(logits: Tensor, prohibited: list[int]) -> Tensor:
    """Return each row's likeliest id (B,) that is not prohibited, the lowest of equals."""
    if logits.device.type != "cpu":
        return prohibit(logits, prohibited).argmax(dim=-1)
    values = logits.numpy()  # argmax of a row of 10,000 is several times faster in numpy than in torch
    kept = values[:, prohibited]
    values[:, prohibited] = -np.inf  # restored below: faster than a copy
    found = torch.from_numpy(values.argmax(axis=-1))
    values[:, prohibited] = kept
    return found


def draw(logits: Tensor, uniform: Sequence[float]) -> Tensor:
    """Turn one uniform number in [0, 1) for each row into an id (B,): the inverse of the cumulative distribution.

    A row of NaN gives an arbitrary id; only rows that have ended may be NaN.
    """
    if logits.device.type == "cpu":
        return torch.from_numpy(_drawn_by_numpy(logits.numpy().astype(np.float64), uniform))
    return drawn_there(logits, torch.tensor(uniform, dtype=torch.float64, device=logits.device))


def drawn_there(logits: Tensor, uniform: Tensor) -> Tensor:
    """Return the ids of `draw` computed on the device of the logits, without a sync; `uniform` (B,) is float64."""
    summed = logits.double().softmax(dim=-1).cumsum(dim=-1)  # (B, V)
    total = summed[:, -1:]
    target = torch.minimum(uniform[:, None] * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(summed, target, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def _drawn_by_numpy(values: NDArray[np.float64], uniform: Sequence[float]) -> NDArray[np.int64]:
    """Return the ids of `draw` computed in numpy: for short rows the overhead of torch exceeds the work."""
    with np.errstate(invalid="ignore"):  # `check_logits` raises for NaN and for rows of −∞
        values -= values.max(axis=-1, keepdims=True)
    rows = np.exp(values, values).cumsum(axis=-1)
    targets = [min(u * row[-1], np.nextafter(row[-1], 0)) for row, u in zip(rows, uniform, strict=True)]
    places = [row.searchsorted(target, "right") for row, target in zip(rows, targets, strict=True)]
    return np.minimum(np.array(places, dtype=np.int64), values.shape[-1] - 1)


def check_logits(logits: Tensor, rows: Tensor) -> None:
    """Raise if one of the `rows` (B,) that are True has NaN, or no id that may be chosen."""
    broken = (~logits.amax(dim=-1).isfinite() & rows).nonzero()
    if len(broken):
        row = int(broken[0])
        got = "no id that may be chosen" if bool((logits[row] == -torch.inf).all()) else "NaN or infinity"
        raise ContractError(f"logits of row {row}", got, "finite logits for at least one id that is not prohibited")
