"""Our layers beside torch.nn's on the CPU: the same weights and inputs, results compared, then interleaved timings.

The goal: never slower than 1.1 times torch.nn. Ragged rows, where half the rows are half as long, are read by
torch.nn through pack_padded_sequence; they have no goal. A pair that the machine disturbed is timed again.
`--quick` runs fewer rounds and keeps no result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from common import save_result
from recollect import GRU, LSTM, RNN, SelfAttention
from recollect.bench.timing import PASSES, largest_difference, one_pass, time_steadily

BATCH, STEPS, WIDTHS, HEAD_WIDTH, THREADS = 32, 128, (256, 512), 64, 2
GOAL = 1.1  # ours / torch.nn, where no row is padded
TOLERANCE = 1e-4  # largest difference of outputs and gradients, relative to the largest value of each tensor
NARROW = 0.2  # the same in bfloat16, where torch.nn adds up the gradients of recurrent weights step by step
STEADY, ATTEMPTS = 0.25, 6  # while the spread is wider, time again; the narrowest attempt counts, whatever its ratio
COLUMNS = "{:15}{:>5}  {:20}{:30}{:>9}{:>9}{:>7}{:>8}{:>4}{:>10}"

Read = Callable[[Tensor], Tensor]


def main() -> int:
    rounds = 5 if "--quick" in sys.argv[1:] else 40
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    print(COLUMNS.format("layer", "H", "pass", "against", "ours ms", "torch ms", "ratio", "spread", "try", "differ"))
    rows = []
    for kind in (RNN, GRU, LSTM):
        for width in WIDTHS:
            rows += recurrent(kind, width, rounds)
    for width in WIDTHS:
        rows += attention(width, rounds)
    missed = [row for row in rows if row["has_goal"] and row["ratio"] > GOAL]
    print(f"{len(missed)} of {sum(row['has_goal'] for row in rows)} rows with a goal are slower than {GOAL}")
    if "--quick" not in sys.argv[1:]:
        setting = {"batch": BATCH, "steps": STEPS, "dtype": "float32", "threads": THREADS, "rounds": rounds}
        setting |= {"steady": STEADY, "most_attempts": ATTEMPTS}
        save_result("layers", rows, setting=setting, goal=GOAL, tolerance=TOLERANCE)
    return 0


def recurrent(kind: Any, width: int, rounds: int) -> list[dict[str, Any]]:
    ours = kind(width, width)
    theirs = ours.to_torch()
    length = torch.full((BATCH,), STEPS)
    length[BATCH // 2 :] //= 2
    valid = torch.arange(STEPS) < length[:, None]

    def packed(x: Tensor) -> Tensor:
        y, _ = theirs(pack_padded_sequence(x, length, batch_first=True))  # sorted already: its fastest path
        return pad_packed_sequence(y, batch_first=True)[0]

    name, peer = kind.__name__, f"nn.{kind.__name__}"
    x = torch.randn(BATCH, STEPS, width)
    whole = duel(name, (ours, lambda x: ours(x)[0]), (theirs, lambda x: theirs(x)[0]), x, rounds)
    ragged = duel(name, (ours, lambda x: ours(x, valid=valid)[0]), (theirs, packed), x, rounds)
    return report(whole, peer, has_goal=True) + report(ragged, "pack_padded_sequence, ragged", has_goal=False)


def attention(width: int, rounds: int) -> list[dict[str, Any]]:
    heads = width // HEAD_WIDTH
    ours = SelfAttention(width, heads)
    theirs = nn.MultiheadAttention(width, heads, batch_first=True)
    with torch.no_grad():
        for a, b in zip(theirs.parameters(), ours.parameters(), strict=True):  # both: in, in bias, out, out bias
            a.copy_(b)
    mask = nn.Transformer.generate_square_subsequent_mask(STEPS)

    def multihead(x: Tensor) -> Tensor:
        return theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]

    def by_hand(x: Tensor) -> Tensor:
        qkv = F.linear(x, theirs.in_proj_weight, theirs.in_proj_bias)
        q, k, v = qkv.unflatten(2, (3, heads, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)  # (B, N, T, H)
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return theirs.out_proj(context.transpose(1, 2).flatten(2))

    us, x = (ours, lambda x: ours(x)[0]), torch.randn(BATCH, STEPS, width)
    rows = report(duel("SelfAttention", us, (theirs, multihead), x, rounds), "nn.MultiheadAttention", has_goal=True)
    hand = duel("SelfAttention", us, (theirs, by_hand), x, rounds)
    return rows + report(hand, "scaled_dot_product, no memory", has_goal=False)


def duel(
    layer: str, ours: tuple[nn.Module, Read], theirs: tuple[nn.Module, Read], x: Tensor, rounds: int
) -> list[dict[str, Any]]:
    """Compare results, then times, of one forward and of one forward + backward pass."""
    rows = []
    for name in PASSES:
        work = {who: one_pass(name, *side, x) for who, side in (("ours", ours), ("torch", theirs))}
        difference = largest_difference(
            work["ours"](), work["torch"](), NARROW if x.dtype == torch.bfloat16 else TOLERANCE
        )
        steady = time_steadily(work, rounds, limit=STEADY, attempts=ATTEMPTS)
        our_s, torch_s = (steady.medians[who] for who in ("ours", "torch"))
        rows.append(
            {
                "layer": layer,
                "hidden": x.shape[2],
                "pass": name,
                "ours_ms": round(our_s * 1e3, 2),
                "torch_ms": round(torch_s * 1e3, 2),
                "ratio": round(our_s / torch_s, 3),
                "spread": round(steady.spread, 3),
                "attempts": steady.attempts,
                "largest_difference": float(f"{difference:.1e}"),
            }
        )
    return rows


def report(rows: list[dict[str, Any]], against: str, *, has_goal: bool) -> list[dict[str, Any]]:
    """Print the rows, and record in them what they were timed against."""
    for row in rows:
        row |= {"against": against, "has_goal": has_goal}
        values = [row["layer"], row["hidden"], row["pass"], against, f"{row['ours_ms']:.1f}", f"{row['torch_ms']:.1f}"]
        values += [f"{row['ratio']:.2f}", f"{row['spread']:.0%}", row["attempts"], f"{row['largest_difference']:.0e}"]
        print(COLUMNS.format(*values), flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
