"""Two sums in a word: as exact as documented, and what is not finite does not come back as a finite number."""

from __future__ import annotations

import ctypes
import math
import os

import pytest
import torch
from emulated import COMPILER, HERE, compile_with, precompile

from recollect.accel.cuda.driver import sources

pytestmark = pytest.mark.skipif(COMPILER is None and os.environ.get("CI") != "true", reason="no g++")

PROGRAM = """
#include "pairs.cuh"
extern "C" __attribute__((visibility("default"))) void round_trip(const float* from, float* to, int pairs) {
    for (int i = 0; i < pairs; ++i) {
        const float2 both = unpack_pair(pack_pair(from[2 * i], from[2 * i + 1]));
        to[2 * i] = both.x, to[2 * i + 1] = both.y;
    }
}
"""


@pytest.fixture(scope="module")
def round_trip(folder, tmp_path_factory):
    """Pack pairs (N, 2) and unpack them again."""
    own = tmp_path_factory.mktemp("pairs")
    for name in ("pairs.cuh", "hardware.cuh"):
        (own / name).write_text(sources()[name], encoding="utf-8")
    (own / "program.cpp").write_text(PROGRAM, encoding="utf-8")
    macros = [f"-D{name}" for name in ("RECOLLECT_EMULATED=1", "ROWS=16", "HALF=0", "TF32=0")]
    where = f"-I{HERE}", f"-I{own}", "-include", precompile(folder)
    compile_with(*where, *macros, str(own / "program.cpp"), "-o", str(own / "pairs.so"))
    library = ctypes.CDLL(str(own / "pairs.so"))

    def run(pairs):
        pairs, back = pairs.float().contiguous(), torch.empty(pairs.shape)
        library.round_trip(ctypes.c_void_p(pairs.data_ptr()), ctypes.c_void_p(back.data_ptr()), len(pairs))
        return back

    return run


def test_both_are_right_to_a_part_of_the_larger(round_trip):
    torch.manual_seed(0)
    pairs = torch.randn(20000, 2) * 2.0 ** torch.randint(-100, 100, (20000, 2))
    error = (round_trip(pairs) - pairs).abs()
    assert (error <= 2.0**-11 * pairs.abs().amax(1, keepdim=True)).all()
    assert error.max() > 0


def test_what_twelve_bits_hold_comes_back_whole(round_trip):
    a = torch.arange(-2047.0, 2048)
    pairs = torch.stack([a, a.flip(0)], 1)
    for scale in (1.0, 2.0**-90, 2.0**90):
        large = pairs[(pairs.abs().amax(1) >= 1024)] * scale
        assert torch.equal(round_trip(large), large)


def test_numbers_just_below_a_power_of_two_and_zero(round_trip):
    below = torch.nextafter(torch.tensor(2.0), torch.tensor(0.0)).item()
    edges = torch.tensor([below, -below, 1.9998, 2.0, -2.0, 0.0, -0.0, 2.0**-126])
    pairs = torch.cartesian_prod(edges, edges)
    error = (round_trip(pairs) - pairs).abs()
    assert (error <= 2.0**-11 * pairs.abs().amax(1, keepdim=True)).all()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e36])
def test_what_is_not_finite_is_seen(round_trip, bad):
    pairs = torch.tensor([[bad, 1.0], [1.0, bad], [bad, bad]])
    assert round_trip(pairs).isnan().all()
