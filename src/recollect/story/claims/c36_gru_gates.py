"""C36: The GRU's reset gate forgets the past and its update gate decides how much of the new is attended to.

中文：GRU 的重置门负责遗忘过去，更新门决定对新信息的关注程度。
Seed: 003_d30a3ba1164faeec.txt:146, 003_d30a3ba1164faeec.txt:161
Budget: seconds
Expected: Z = 1 keeps the state; Z = 0, R = 1 is the plain RNN; Z = 0, R = 0 reads the input alone; with R = 0 but Z = 0.9 the past is kept
预期: Z=1 保持状态；Z=0、R=1 就是普通 RNN；Z=0、R=0 只看输入；R=0 而 Z=0.9 时过去依然保留
Rule: holds if R = 0 alone forgets; holds if … with the condition Z = 0 where the three limits agree to 1e-12 but R = 0, Z = 0.9 keeps the past; else does not hold
Exact: holds if
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from recollect.layers.recurrent.gru import GRU
from recollect.layers.recurrent.recurrence import Hidden
from recollect.layers.recurrent.rnn import RNN
from recollect.story.claim import Budget, Control, Result
from recollect.story.judging import identity, largest_error
from recollect.views.bilingual import Bilingual

HIDDEN = 6
OPEN, SHUT = 1e4, -1e4  # σ is exactly 1 and exactly 0


def run(budget: Budget) -> Result:
    x = torch.randn(200, 1, 3, dtype=torch.float64)
    past = torch.randn(200, HIDDEN, dtype=torch.float64)
    kept = largest_error(_state(_gru(None, OPEN), x, past), past)
    plain = _gru(OPEN, SHUT)
    vanilla = largest_error(_state(plain, x, past), _candidate(plain)(x, Hidden(hidden=past))[1].hidden)
    shut = _gru(SHUT, SHUT)
    alone = largest_error(_state(shut, x, past), _state(shut, x, torch.zeros_like(past)))
    correlation = _correlation(_state(_gru(SHUT, 2.1972), x, past), past)  # σ(2.1972) = 0.9
    limits = {"Z=1: h_t - h_{t-1}": kept, "Z=0, R=1: GRU - RNN": vanilla, "Z=0, R=0: effect of h_{t-1}": alone}
    wrong = Control(Bilingual("correlation with the past, R=0, Z=0.9", "R=0、Z=0.9 时与过去的相关系数"), correlation)
    result = identity(limits, 1e-12, wrong)
    is_kept = result.verdict == "holds" and correlation > 0.9
    found = Bilingual(
        f"The three limits hold to {result.effect:.0e}; with R = 0 and Z = 0.9 the new state still correlates "
        f"{correlation:.3f} with the old one.",
        f"三个极限的误差不超过 {result.effect:.0e}；R=0 而 Z=0.9 时，新旧状态的相关系数仍为 {correlation:.3f}。",
    )
    condition = Bilingual(
        "the update gate is shut: reset acts on the candidate only", "更新门关闭：重置门只作用于候选状态"
    )
    return replace(result, found=found, verdict="holds if" if is_kept else "does not hold", condition=condition)


def _gru(r: float | None, z: float) -> GRU:
    """Return a GRU with its gates pinned by their biases."""
    torch.manual_seed(0)
    layer = GRU(3, HIDDEN, reset="before", dtype=torch.float64)
    assert layer.bias_ih is not None
    with torch.no_grad():
        for place, pin in enumerate([r, z]):
            if pin is not None:
                rows = slice(place * HIDDEN, (place + 1) * HIDDEN)
                layer.bias_ih[rows] = pin
                for weight in (layer.weight_ih, layer.weight_hh):
                    weight[rows] = 0
                assert layer.bias_hh is not None
                layer.bias_hh[rows] = 0
    return layer


def _candidate(gru: GRU) -> RNN:
    """Return the RNN with the weights of the candidate."""
    rnn = RNN(3, HIDDEN, dtype=torch.float64)
    rnn.load_state_dict({name: p[2 * HIDDEN :] for name, p in gru.state_dict().items()})
    return rnn


@torch.no_grad()
def _state(layer: GRU, x: Tensor, past: Tensor) -> Tensor:
    return layer(x, Hidden(hidden=past))[1].hidden


def _correlation(a: Tensor, b: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])
