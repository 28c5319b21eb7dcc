"""Small attentions of every score and alignment, and the checks that all of them share."""

from __future__ import annotations

import torch
from torch import Tensor

from recollect.layers.attention.alignment import make_alignment
from recollect.layers.attention.attend import Attend
from recollect.layers.attention.score import SCORES, make_score

DTYPE = torch.float64
WIDTH = 4
LENGTHS = torch.tensor([5, 0, 2, 7])  # of the source's rows: one empty, one full
PARAMETRIC = [name for name in SCORES if name not in ("dot", "scaled")]


def attention(score: str = "scaled", alignment: str = "soft", **options) -> Attend:
    """Make an attention with parameters that are neither zero nor one."""
    torch.manual_seed(0)
    made = Attend(make_score(score, WIDTH, WIDTH, **options), make_alignment(alignment, **choices(alignment))).double()
    with torch.no_grad():
        for p in made.score.parameters():
            p.normal_(std=0.7)
    return made.eval()


def choices(alignment: str) -> dict[str, int]:
    """Give the arguments that an alignment cannot do without."""
    return {
        "local-monotonic": {"window": 2},
        "local-predictive": {"window": 2, "query_width": WIDTH},
    }.get(alignment, {})


def example(seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Give queries (4, 3, WIDTH), features (4, 7, WIDTH) and which of the features are valid."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(4, 3, WIDTH, dtype=DTYPE, generator=generator)
    features = torch.randn(4, 7, WIDTH, dtype=DTYPE, generator=generator)
    return q, features, torch.arange(7) < LENGTHS[:, None]


def poisoned(features: Tensor, valid: Tensor) -> Tensor:
    """Put NaN wherever nothing may be read."""
    return features.masked_fill(~valid[..., None], torch.nan)


def fails(check, *args) -> bool:
    """Whether a check sees the fault."""
    try:
        check(*args)
    except AssertionError:
        return True
    return False


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def check_weights(weights: Tensor, valid: Tensor) -> None:
    """Weights (B, T, S) or (B, T, S, F) sum to 1 over the valid steps, per feature, and are zero elsewhere."""
    mask = valid[:, None, :, None] if weights.dim() == 4 else valid[:, None]
    assert (weights.masked_select(~mask.expand_as(weights)) == 0).all()
    total = weights.sum(2)
    has_any = valid.any(1).to(weights.dtype)
    close(total, has_any.reshape(-1, *[1] * (total.dim() - 1)).expand_as(total))
