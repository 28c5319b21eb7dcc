"""The fused kernels of TTT-Linear on a GPU: error against float64, time of forward and backward, and of each kernel.

    PYTHONPATH=src[:PEERS] python benchmarks/ttt_kernels.py [--rounds N]

The layer without projections: k, v, q and the rate are given, 12 heads of 64, bf16, mini-batches of 16. Where
flash-linear-attention can be imported its `chunk_ttt_linear` is measured interleaved with ours, and
scaled-dot-product attention on the same q, k, v always.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common import interleave, save_result, summary
from recollect.accel.cuda.ttt import linear
from recollect.bench.timing import events
from recollect.layers.ttt.fast_weights import FastWeights, Views
from recollect.layers.ttt.layer import TTTLinear

SHAPES = ((32, 2048), (8, 8192), (2, 32768))
HEADS, WIDTH, SIZE = 12, 64, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = [{"error": errors(drawn(1, 1024))}]
    for batch, steps in SHAPES:
        rows.append(measure(batch, steps, options.rounds))
        print(rows[-1], flush=True)
        save_result("ttt-kernels", rows, rounds=options.rounds)


def drawn(batch: int, steps: int) -> list[Tensor]:
    """Return k, v, q together, the rate, W_0, γ and β."""
    g = torch.Generator("cuda").manual_seed(0)
    given = [
        torch.randn(batch, steps, 3, HEADS, WIDTH, generator=g, device="cuda"),
        torch.rand(batch, steps, HEADS, generator=g, device="cuda") / WIDTH,
        0.02 * torch.randn(HEADS, WIDTH, WIDTH, generator=g, device="cuda"),
        1 + 0.1 * torch.randn(HEADS, WIDTH, generator=g, device="cuda"),
        0.1 * torch.randn(HEADS, WIDTH, generator=g, device="cuda"),
    ]
    return [t.bfloat16().requires_grad_() for t in given]


def fused(kvq: Tensor, rate: Tensor, start: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    batch, steps = kvq.shape[:2]
    k, v, q = kvq.unbind(2)
    weight = start.expand(batch, -1, -1, -1).contiguous()
    share = 1 / torch.arange(1, SIZE + 1, device="cuda")
    ends = torch.zeros(batch, dtype=torch.int32, device="cuda")
    shape = linear.Shape(SIZE, steps, True, False, False, "tf32")
    norm = (gamma, beta)
    return linear.read(shape, k, v, q, rate, weight, torch.zeros_like(weight), share, share[-1], *norm, ends, ends)[:2]


def exact(kvq: Tensor, rate: Tensor, start: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the layer computes in float64, with autograd through every mini-batch."""
    k, v, q = (t.transpose(1, 2) for t in kvq.unbind(2))
    layer = TTTLinear(HEADS * WIDTH, HEADS, mini_batch=SIZE, dtype=torch.float64, device="cuda")
    del layer.norm
    layer.norm = torch.stack([gamma, beta])[:, :, None]
    weight = start.expand(len(kvq), -1, -1, -1).contiguous()
    length = torch.zeros(len(kvq), dtype=torch.long, device="cuda")
    memory = FastWeights(weights=(weight,), gathered=(torch.zeros_like(weight),), length=length, at_border=True)
    answers, after = super(TTTLinear, layer)._aligned(Views(k, v, q, rate.transpose(1, 2)[..., None]), memory, SIZE)
    return answers.transpose(1, 2), after.weights[0]


def errors(given: list[Tensor]) -> dict[str, float]:
    """Return ‖ours − exact‖ / ‖exact‖ of the answers, the last weights, and the gradients of all inputs."""
    wide = [t.detach().double().requires_grad_() for t in given]
    ours, wanted = list(fused(*given)), list(exact(*wide))
    d = [torch.randn_like(t) for t in ours]
    ours += torch.autograd.grad(ours, given, d)
    wanted += torch.autograd.grad(wanted, wide, [t.double() for t in d])
    names = ("answers", "weights", "d_kvq", "d_rate", "d_start", "d_gamma", "d_beta")
    pairs = zip(names, ours, wanted, strict=True)
    return {name: ((a.double() - b).norm() / b.norm()).item() for name, a, b in pairs}


def measure(batch: int, steps: int, rounds: int) -> dict[str, Any]:
    given = drawn(batch, steps)
    k, v, q = (t.detach().transpose(1, 2).contiguous().requires_grad_() for t in given[0].unbind(2))
    calls: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
        "ours": (lambda: fused(*given)[0], given),
        "attention": (lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), [q, k, v]),
    }
    calls |= peer(given)
    found: dict[str, Any] = {"batch": batch, "steps": steps}
    forwards = {name: without_gradients(call) for name, (call, _) in calls.items()}
    both = {name: with_gradients(*call) for name, call in calls.items()}
    for what, contenders in (("forward", forwards), ("forward_backward", both)):
        times = interleave(contenders, rounds=rounds, clock=events)
        found[what] = {name: summary(seconds) for name, seconds in times.items()}
    return found


def peer(given: list[Tensor]) -> dict[str, tuple[Callable[[], Tensor], list[Tensor]]]:
    try:
        from fla.ops.ttt.chunk import chunk_ttt_linear
    except ImportError:
        return {}
    kvq, rate, _, gamma, beta = (t.detach() for t in given)
    k, v, q = (t.contiguous() for t in kvq.unbind(2))
    k, q = (F.normalize(t.float(), dim=-1).bfloat16() for t in (k, q))  # else its values overflow
    inputs = [t.clone().requires_grad_() for t in (q, k, v, gamma, beta, rate[..., None])]
    return {"fla": (lambda: chunk_ttt_linear(*inputs, scale=1.0, chunk_size=SIZE)[0], inputs)}


def without_gradients(call: Callable[[], Tensor]) -> Callable[[], Any]:
    return torch.no_grad()(call)


def with_gradients(call: Callable[[], Tensor], inputs: list[Tensor]) -> Callable[[], Any]:
    d = torch.randn_like(call())

    def run() -> tuple[Tensor, ...]:
        return torch.autograd.grad(call(), inputs, d, allow_unused=True)

    return run


if __name__ == "__main__":
    main()
