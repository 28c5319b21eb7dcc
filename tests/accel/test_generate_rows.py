"""Products of one row with large matrices, in C between calls of numpy."""

from __future__ import annotations

import pytest
import torch
from both_ways import GREEDY, assert_same, plainly

from recollect.accel.cpu.decode import library, repeated_step as repeating
from recollect.accel.cpu.decode.lowering import product
from recollect.accel.cpu.decode.row_products import LEAST, RowProduct, row_product
from recollect.generation.sampling import generate
from recollect.models.language import LanguageConfig, LanguageModel

pytestmark = pytest.mark.usefixtures("compiler")


def factors(rows: int, depth: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [
        torch.randn(rows, depth, dtype=dtype),
        torch.randn(1, depth, dtype=dtype),
        torch.zeros(1, rows, dtype=dtype),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rows", "depth"), [(64, 128), (1, 9001), (9001, 1), (257, 333), (20_000, 64)])
def test_a_product_is_torchs_and_the_same_by_any_number_of_threads(rows, depth, dtype):
    weight, x, out = factors(rows, depth, dtype)
    found = row_product(out, x, weight.t())
    said = []
    for threads in (1, 2, 3, 1):
        out.fill_(torch.nan)
        with library.cores(threads):
            found()
        said.append(out.clone())
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    assert torch.allclose(said[0], x @ weight.t(), tolerance, tolerance)
    assert all(torch.equal(said[0], other) for other in said)


@pytest.mark.parametrize("harm", ["small", "turned", "with a gap"])
def test_other_matrices_are_numpys(harm):
    weight, x, out = factors(128, LEAST // 128 - (harm == "small"), torch.float32)
    weight = torch.empty(weight.shape[::-1]).t() if harm == "turned" else weight
    weight = torch.empty(len(weight), 2 * weight.shape[1])[:, ::2] if harm == "with a gap" else weight
    assert row_product(out, x, weight.t()) is None
    ((does, _),) = product(out, x, weight.t(), None, True, in_c=True)
    assert not isinstance(does, RowProduct)


def test_a_bias_is_added():
    weight, x, out = factors(128, 128, torch.float32)
    for does, args in product(out, x, weight.t(), x[0], True, in_c=True):
        does(*args)
    assert torch.allclose(out, x @ weight.t() + x, 1e-4, 1e-4)


def model_of(width: int) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(LanguageConfig("transformer", 50, width=width, heads=2, depth=1)).double().eval()


def products_of(model: LanguageModel) -> int:
    return sum(isinstance(does, RowProduct) for step in repeating._RECORDED[model] for does, _ in step._on_step)


def test_large_models_say_the_same_with_them():
    model = model_of(128)  # 512 x 128 in its feed-forward part
    found = generate(model, [[1, 2, 3]], GREEDY)
    assert products_of(model) == 4  # but not the map to the vocabulary, which is small
    assert_same(found, plainly(model, [[1, 2, 3]], GREEDY))


def test_new_weights_are_seen_at_once():
    model = model_of(128)
    before = generate(model, [[1, 2, 3]], GREEDY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.neg_()
    after = generate(model, [[1, 2, 3]], GREEDY)
    assert after[0].ids != before[0].ids
    assert_same(after, plainly(model, [[1, 2, 3]], GREEDY))


def test_small_models_and_several_rows_do_without():
    small, large = model_of(64), model_of(128)
    generate(small, [[1]], GREEDY)
    generate(large, [[1], [2]], GREEDY)
    assert products_of(small) == products_of(large) == 0


def test_without_a_compiler_numpy_does_it(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "/bin/false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.functions.cache_clear()
    model = model_of(128)
    found = generate(model, [[1, 2, 3]], GREEDY)
    assert products_of(model) == 0
    assert_same(found, plainly(model, [[1, 2, 3]], GREEDY))
