"""The nine laws on a device: every layer of the line and its variants, in float64 and float32.

    python benchmarks/laws.py --device cuda

The tests check the laws on the CPU; this checks them where other kernels run.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from common import save_result
from recollect import (
    GRU,
    LSTM,
    RNN,
    TTTMLP,
    BasicSelfAttention,
    Bidirectional,
    Block,
    CrossAttention,
    LinearAttention,
    Markov,
    Positions,
    SelfAttention,
    SequenceLayer,
    Stack,
    TTTLinear,
    Window,
    check_layer,
)

LAYERS: dict[str, Callable[[], SequenceLayer[Any]]] = {
    "Window": lambda: Window(8, 3),
    "RNN": lambda: RNN(8, 16),
    "RNN relu, no bias": lambda: RNN(8, 16, nonlinearity="relu", bias=False),
    "GRU": lambda: GRU(8, 16),
    "GRU reset before": lambda: GRU(8, 16, reset="before"),
    "LSTM": lambda: LSTM(8, 16),
    "LSTM, no bias": lambda: LSTM(8, 16, bias=False),
    "Bidirectional": lambda: Bidirectional(LSTM(8, 16), GRU(8, 8)),
    "BasicSelfAttention": lambda: BasicSelfAttention(8),
    "SelfAttention": lambda: SelfAttention(16, 2),
    "SelfAttention full view": lambda: SelfAttention(16, 2, causal=False),
    "SelfAttention window": lambda: SelfAttention(16, 2, window=5),
    "SelfAttention rotary, grouped": lambda: SelfAttention(16, 4, kv_heads=2, positions="rotary"),
    "SelfAttention alibi": lambda: SelfAttention(16, 2, positions="alibi"),
    "CrossAttention": lambda: CrossAttention(16, 2),
    "LinearAttention": lambda: LinearAttention(16, 2),
    "Positions": lambda: Positions(8),
    "TTTLinear": lambda: TTTLinear(16, 2),
    "TTTMLP": lambda: TTTMLP(16, 2, mini_batch=4),
    "Block": lambda: Block(SelfAttention(16, 2), norm="post"),
    "mixed stack": lambda: Stack(LSTM(8, 16), Block(SelfAttention(16, 2)), Block(TTTLinear(16, 2))),
}


def check(make: Callable[[], SequenceLayer[Any]], dtype: torch.dtype, device: str) -> None:
    torch.manual_seed(0)
    layer = make().to(device, dtype)
    memory = None
    if isinstance(layer, CrossAttention):
        source = torch.randn(3, 5, 16, device=device, dtype=dtype)
        memory = layer.remember(source, torch.arange(5, device=device) < torch.tensor([[5], [0], [2]], device=device))
    check_layer(layer, memory=memory)


def check_markov(device: str) -> None:
    layer = Markov(11, 3)
    layer.count(torch.randint(11, (4, 60), generator=torch.Generator().manual_seed(0)))
    check_layer(layer.to(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # 1e-4 is asked of float32
    warnings.filterwarnings("error", category=RuntimeWarning)
    rows = []
    for name, make in LAYERS.items():
        for dtype in (torch.float64, torch.float32):
            start = time.perf_counter()
            check(make, dtype, device)
            rows.append({"layer": name, "dtype": str(dtype), "laws": 9, "seconds": time.perf_counter() - start})
            print(f"{name:32} {dtype}  nine laws hold  {rows[-1]['seconds']:.1f} s", flush=True)
    check_markov(device)
    rows.append({"layer": "Markov", "dtype": "torch.float64", "laws": 9})
    save_result(f"laws-{device}", rows)


if __name__ == "__main__":
    main()
