"""Exact identities of attention, linear attention and test-time training."""

from __future__ import annotations

import pytest
import torch

from recollect import TTTMLP, LinearAttention, Positions, SelfAttention, Stack, TTTLinear, record
from recollect.core.record import readable
from recollect.layers.positions import rotate, sinusoids
from recollect.layers.ttt.inner import gelu, gelu_slope, standardised, standardised_gradient

DTYPE = torch.float64


def plain_ttt(width: int, heads: int, **options) -> TTTLinear:
    """Test-time training without norm, residual or learned start, its gradients summed."""
    switches = {"norm": False, "residual": False, "learned_start": False, "average": False}
    return TTTLinear(width, heads, dtype=DTYPE, **(switches | options))


def test_ttt_with_one_mini_batch_is_linear_attention():
    torch.manual_seed(0)
    ttt = plain_ttt(12, 3, mini_batch=None, rate=0.5)
    linear = LinearAttention(12, 3, feature="identity", dtype=DTYPE)
    k, v, q = ttt.kvq.weight.chunk(3)
    with torch.no_grad():
        linear.qkv.weight.copy_(torch.cat([q, k, v]))
        linear.out.weight.copy_(ttt.out.weight)
    x = torch.randn(2, 100, 12, dtype=DTYPE, requires_grad=True)
    y_ttt, y_linear = ttt(x)[0], linear(x)[0]
    torch.testing.assert_close(y_ttt, y_linear, rtol=1e-10, atol=1e-10)
    for loss in (y_ttt, y_linear):
        assert loss.abs().sum() > 1
    (g_ttt,), (g_linear,) = (torch.autograd.grad(y.square().sum(), x) for y in (y_ttt, y_linear))
    torch.testing.assert_close(g_ttt, g_linear, rtol=1e-10, atol=1e-10)


def test_ttt_with_a_smaller_mini_batch_is_something_else():
    torch.manual_seed(0)
    whole, small = (plain_ttt(12, 3, mini_batch=b, rate=0.01) for b in (None, 4))
    small.load_state_dict(whole.state_dict())
    x = torch.randn(2, 20, 12, dtype=DTYPE)
    difference = (whole(x)[0] - small(x)[0]).abs()
    assert difference[:, :4].max() < 1e-12
    assert difference[:, 4:].max() > 1e-6


@pytest.mark.parametrize("kind", [TTTLinear, TTTMLP])
@pytest.mark.parametrize("mini_batch", [1, 4, 16, 64, None])
@pytest.mark.parametrize("average", [True, False])
def test_dual_equals_primal(kind, mini_batch, average):
    torch.manual_seed(0)
    layer = kind(12, 3, mini_batch=mini_batch, average=average, dtype=DTYPE)
    x = torch.randn(2, 150, 12, dtype=DTYPE, requires_grad=True)
    y, memory = layer(x)
    with readable():
        y_primal, memory_primal = layer(x)
    torch.testing.assert_close(y, y_primal, rtol=1e-10, atol=1e-10)
    assert memory.equals(memory_primal, 1e-10)
    leaves = [x, *layer.parameters()]  # the learned start among them
    found = [torch.autograd.grad(out.square().sum(), leaves) for out in (y, y_primal)]
    for dual, primal in zip(*found, strict=True):
        assert dual.abs().max() > 0
        torch.testing.assert_close(dual, primal, rtol=1e-9, atol=1e-9 * float(primal.abs().max()))


@pytest.mark.parametrize("kind", [TTTLinear, TTTMLP])
def test_one_primal_step_is_one_autograd_step_of_the_inner_loss(kind):
    torch.manual_seed(0)
    layer = kind(8, 2, mini_batch=1, rate=0.1, average=False, dtype=DTYPE)
    x = torch.randn(3, 1, 8, dtype=DTYPE)
    memory = layer.initial_memory(3)
    weights = [w.detach().requires_grad_() for w in memory.weights]
    k, v, _ = layer.kvq(x).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
    loss = (layer.f(k, tuple(weights)) - v).square().sum()
    expected = [w - 0.1 * g for w, g in zip(weights, torch.autograd.grad(loss, weights), strict=True)]
    _, after = layer(x, memory)
    for w, e in zip(after.weights, expected, strict=True):
        torch.testing.assert_close(w, e, rtol=1e-10, atol=1e-10)


def test_the_inner_loss_falls_by_the_inner_step():
    torch.manual_seed(0)
    layer = TTTLinear(16, 2, dtype=DTYPE)
    with record(layer) as seen:
        layer(torch.randn(4, 32, 16, dtype=DTYPE))
    assert seen["loss_after"].shape == seen["loss_before"].shape == (4, 32, 2)
    assert seen["loss_after"].mean() < seen["loss_before"].mean()
    assert ((seen["rate"] > 0) & (seen["rate"] < 1 / 8)).all()


def test_inner_gradients_equal_autograd():
    torch.manual_seed(0)
    z, up = torch.randn(5, 7, dtype=DTYPE, requires_grad=True), torch.randn(5, 7, dtype=DTYPE)
    (expected,) = torch.autograd.grad((standardised(z)[0] * up).sum(), z)
    torch.testing.assert_close(standardised_gradient(*standardised(z), up), expected, rtol=1e-10, atol=1e-10)
    (expected,) = torch.autograd.grad(gelu(z).sum(), z)
    torch.testing.assert_close(gelu_slope(z), expected, rtol=1e-10, atol=1e-10)


def test_nadaraya_watson_with_an_exponential_kernel_is_softmax_attention():
    """ŷ(q) = Σ_s κ(q, k_s) v_s / Σ_s κ(q, k_s) with κ(q, k) = exp(q · k / √H) (Nadaraya 1964, Watson 1964)."""
    torch.manual_seed(0)
    layer = SelfAttention(6, 1, dtype=DTYPE)
    x = torch.randn(2, 9, 6, dtype=DTYPE)
    q, k, v = layer.qkv(x).chunk(3, dim=2)
    kernel = torch.exp(torch.einsum("bth,bsh->bts", q, k) / 6**0.5)
    expected = []
    for t in range(9):
        near = kernel[:, t, : t + 1]
        expected.append((near[..., None] * v[:, : t + 1]).sum(1) / near.sum(1, keepdim=True))
    torch.testing.assert_close(layer(x)[0], layer.out(torch.stack(expected, 1)), rtol=1e-10, atol=1e-10)


def test_unmasked_attention_is_permutation_equivariant_and_the_mask_breaks_it():
    torch.manual_seed(0)
    x, order = torch.randn(2, 8, 12, dtype=DTYPE), torch.randperm(8)
    full, causal = (SelfAttention(12, 3, causal=view, dtype=DTYPE) for view in (False, True))
    causal.load_state_dict(full.state_dict())
    torch.testing.assert_close(full(x[:, order])[0], full(x)[0][:, order], rtol=1e-10, atol=1e-10)
    assert (causal(x[:, order])[0] - causal(x)[0][:, order]).abs().max() > 0.01
    placed = Stack(Positions(12), full)
    assert (placed(x[:, order])[0] - placed(x)[0][:, order]).abs().max() > 0.01


def test_scores_grow_with_the_width_unless_scaled():
    """The variance of q · k is H; divided by √H it is 1."""
    torch.manual_seed(0)
    for size in (16, 64, 256):
        q, k = torch.randn(2, 4000, size, dtype=DTYPE)
        scores = (q * k).sum(-1)
        assert abs(scores.var() / size - 1) < 0.15
        layers = [SelfAttention(size, 1, scaled=scaled) for scaled in (True, False)]
        assert layers[0].scale == pytest.approx(size**-0.5)
        assert layers[1].scale == 1.0


def test_rotated_products_depend_on_the_distance_alone():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 2, 8, dtype=DTYPE)

    def product(t: int, s: int) -> torch.Tensor:
        return (rotate(q, torch.tensor([[t]])) * rotate(k, torch.tensor([[s]]))).sum(-1)

    torch.testing.assert_close(product(5, 3), product(105, 103), rtol=1e-10, atol=1e-10)
    assert (product(5, 3) - product(5, 2)).abs().max() > 1e-3
    torch.testing.assert_close(product(0, 0), (q * k).sum(-1), rtol=1e-10, atol=1e-10)


def test_sinusoids_are_the_papers():
    table = sinusoids(torch.arange(20)[None], 6, DTYPE)[0]
    for t in (0, 1, 7, 19):
        for i in range(3):
            angle = torch.tensor(t / 10000 ** (2 * i / 6), dtype=DTYPE)
            torch.testing.assert_close(table[t, 2 * i], angle.sin())
            torch.testing.assert_close(table[t, 2 * i + 1], angle.cos())


def test_linear_attention_is_its_definition_summed_out():
    torch.manual_seed(0)
    layer = LinearAttention(8, 2, dtype=DTYPE)
    x = torch.randn(2, 70, 8, dtype=DTYPE)
    q, k, v = layer.qkv(x).unflatten(2, (3, 2, 4)).unbind(2)
    q, k = (torch.nn.functional.elu(t) + 1 for t in (q, k))
    weights = torch.einsum("btnh,bsnh->bnts", q, k).tril()
    context = torch.einsum("bnts,bsnh->btnh", weights / (weights.sum(-1, keepdim=True) + 1e-6), v)
    torch.testing.assert_close(layer(x)[0], layer.out(context.flatten(2)), rtol=1e-10, atol=1e-10)
