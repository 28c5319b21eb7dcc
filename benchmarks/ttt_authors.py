"""Our TTT layers with all switches beside their authors' code, unmodified: outputs and gradients.

    python benchmarks/ttt_authors.py

needs peers/ttt-lm-pytorch (github.com/test-time-training/ttt-lm-pytorch), whose ttt.py is imported as it is. Weights
are copied from theirs to ours; their inner gradient is f(k) − v where ours is 2 (f(k) − v), as the paper writes it, so
our base rate is half of theirs. 40 steps are two mini-batches and a half.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import torch
from torch import Tensor

from common import ROOT, save_result
from recollect import TTTMLP, TTTLinear

WIDTH, HEADS, STEPS = 32, 4, 40
SWITCHES = {"rotary": True, "learned_share": True, "inner_bias": True, "post_norm": True}
CASES = {"TTTLinear": TTTLinear, "TTTMLP": TTTMLP}


def main() -> None:
    path = ROOT / "peers" / "ttt-lm-pytorch" / "ttt.py"
    if not path.exists():
        sys.exit(f"{path}: not there; clone github.com/test-time-training/ttt-lm-pytorch into peers/")
    spec = importlib.util.spec_from_file_location("authors_ttt", path)
    assert spec is not None
    assert spec.loader is not None
    authors = importlib.util.module_from_spec(spec)
    sys.modules["authors_ttt"] = authors
    spec.loader.exec_module(authors)
    save_result("ttt_authors", [compare(authors, name, gate) for name in CASES for gate in (False, True)])


def compare(authors: Any, name: str, gate: bool) -> dict[str, Any]:
    """Return the largest differences of outputs and of gradients."""
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "mini_batch_size": 16}
    config = authors.TTTConfig(**sizes, ttt_base_lr=1.0, use_gate=gate, share_qk=False, scan_checkpoint_group_size=0)
    theirs = getattr(authors, name)(config, layer_idx=0).double()
    for p in theirs.parameters():  # none may stay at zero or one
        p.data += 0.1 * torch.randn_like(p)
    ours = CASES[name](WIDTH, HEADS, base_rate=0.5, gate=gate, **SWITCHES).double()
    copy_weights(theirs, ours)
    x = torch.randn(2, STEPS, WIDTH, dtype=torch.double)
    places = torch.arange(STEPS)[None]
    wanted, wanted_slope = outputs_and_gradient(lambda x: theirs(x, position_ids=places), x)
    found, found_slope = outputs_and_gradient(lambda x: ours(x)[0], x)
    row = {"layer": name, "gate": gate, "outputs": float((wanted - found).abs().max())}
    row["gradients"] = float((wanted_slope - found_slope).abs().max() / wanted_slope.abs().max())
    print(row)
    return row


def outputs_and_gradient(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs, and the gradient of their weighted sum with respect to the inputs."""
    x = x.clone().requires_grad_()
    y = layer(x)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    assert x.grad is not None
    return y.detach(), x.grad


@torch.no_grad()
def copy_weights(theirs: Any, ours: Any) -> None:
    """Copy their weights into our layer: projections stacked, biases as last rows."""
    ours.kvq.weight.copy_(torch.cat([theirs.k_proj.weight, theirs.v_proj.weight, theirs.q_proj.weight]))
    ours.out.weight.copy_(theirs.o_proj.weight)
    ours.rate_gate.weight.copy_(theirs.learnable_ttt_lr_weight[:, 0])
    ours.rate_gate.bias.copy_(theirs.learnable_ttt_lr_bias[:, 0])
    ours.norm.copy_(torch.stack([theirs.ttt_norm_weight, theirs.ttt_norm_bias])[:, :, None])
    ours.share.copy_(theirs.learnable_token_idx)
    ours.post_norm.load_state_dict(theirs.post_norm.state_dict())
    if ours.gate is not None:
        ours.gate.weight.copy_(theirs.g_proj.weight)
    for i, weight in enumerate(ours.start, 1):
        weight.copy_(torch.cat([getattr(theirs, f"W{i}"), getattr(theirs, f"b{i}")], dim=1))


if __name__ == "__main__":
    main()
