"""Reach before any training: how far a gradient comes back through new models, and what the forget gate's bias does."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from recollect.core.types import JsonObject
from recollect.layers.recurrent.lstm import LSTM
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.serving.packing import pack

STEPS, WIDTH, VOCABULARY, ROWS = 64, 64, 64, 8
DISTANCE = 48  # at which the page prints the gradient
BIASES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
FAMILIES = {"rnn": "rnn", "gru": "gru", "transformer": "attention", "ttt-linear": "ttt-linear"}


def untrained_reach(family: str, bias: float | None = None) -> NDArray[np.float64]:
    """Return ‖∂ln p_T / ∂x_{T−d}‖ for d = 0 … 63, the mean over eight random sequences.

    One layer of 64 units with its initial weights; with `bias`, an LSTM whose forget gate has this bias.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LanguageModel(LanguageConfig(family, VOCABULARY, width=WIDTH, layers=1)).double()
        ids = torch.randint(VOCABULARY, (ROWS, STEPS + 1))
    for layer in model.modules():
        if isinstance(layer, LSTM) and bias is not None and layer.bias_ih is not None:
            layer.bias_ih.data[layer.hidden : 2 * layer.hidden] = bias
    bottom, rest = model.body[0], model.body[1:]  # type: ignore[index]
    x = bottom(ids[:, :-1])[0].detach().requires_grad_()  # (B, T, D)
    log_p = rest(x)[0][:, -1].log_softmax(-1)  # (B, V)
    (gradient,) = torch.autograd.grad(log_p.gather(1, ids[:, -1:]).sum(), x)
    return gradient.norm(dim=2).mean(0).flip(0).numpy()


@cache
def laboratory() -> JsonObject:
    """Return the curves of the page's second figure."""
    curves = {"rnn": pack(untrained_reach("rnn")[None]), "gru": pack(untrained_reach("gru")[None])}
    curves["lstm"] = pack(np.stack([untrained_reach("lstm", bias) for bias in BIASES]))
    curves |= {family: pack(untrained_reach(family)[None]) for family in ("transformer", "ttt-linear")}
    return {
        "distance": DISTANCE,
        "biases": list(BIASES),
        "curves": curves,
        "names": {"transformer": "attention"},
        "series": {"rnn": 3, "gru": 5, "lstm": 4, "transformer": 7, "ttt-linear": 8},
    }
