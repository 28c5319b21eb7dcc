"""Test-time training: the memory is itself a small model, trained during the forward pass.

Two forms. `read` is the primal one: it computes every step's weights W_t. `fast` is the dual one: within a mini-batch
all inner gradients are taken at the same weights, so their effect on a query is a masked matrix product, as in
attention, and no W_t is computed.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from recollect.core.layer import SequenceLayer
from recollect.core.record import note
from recollect.core.types import TensorOptions
from recollect.core.validate import fill_invalid
from recollect.layers.positions import positions_from, rotate
from recollect.layers.ttt.dual_linear import Slots, borders, in_slots, read_slots
from recollect.layers.ttt.fast_weights import FastWeights, Lesson, Views, add, choose, shifted
from recollect.layers.ttt.inner import EPSILON, gelu, gelu_slope, standardised, standardised_gradient, with_one

CHUNK = 64  # steps read in parallel where the whole sequence is one mini-batch


class TTT(SequenceLayer[FastWeights]):
    """Test-time training (Sun et al. 2024, arXiv 2407.04620).

    Views of each step: k = θ_K x, v = θ_V x, q = θ_Q x. An inner model f(·; W) is trained at every step to map k to v,
    and is then evaluated at q:

        ℓ(W; x_t) = ‖f(k_t; W) − v_t‖²        f(u) = u + LN(f_res(u; W))
        W_t = W_{t′} − Σ_{s=t′+1}^{t} η_s ∇ℓ(W_{t′}; x_s)        y_t = W_o f(q_t; W_t)

    with t′ the last border of mini-batches of `mini_batch` steps (None: the whole sequence is one). Switches: `norm`
    and `residual` of f; `rate` η fixed as a number, or "learned": η_s = base_rate · σ(θ_lr · x_s) / H; `learned_start`
    for W_0, else zeros; `average` divides the sum by t − t′, as the authors' code does and their equations do not.

    More switches, all from the authors' code and off by default: `rotary` rotates k and q by their position in the
    mini-batch; `learned_share` adds a learned number to each 1/(t − t′), not below zero; `inner_bias` gives each layer
    of f_res a bias, an extra row of W; `post_norm` normalises the heads' answers together before W_o; `gate` multiplies
    them by gelu(θ_G x). With these on and half their base rate, whose gradient is f(k) − v, this is their layer
    without shared θ_K and θ_Q (`benchmarks/ttt_authors.py`); their convolution is a separate layer, `Convolution`.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        mini_batch: int | None = 16,
        rate: float | Literal["learned"] = "learned",
        base_rate: float = 1.0,
        norm: bool = True,
        residual: bool = True,
        average: bool = True,
        learned_start: bool = True,
        rotary: bool = False,
        learned_share: bool = False,
        inner_bias: bool = False,
        post_norm: bool = False,
        gate: bool = False,
        **factory: Unpack[TensorOptions],
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads: got {heads}, expected a divisor of the width {width}")
        if mini_batch is not None and mini_batch < 1:
            raise ValueError(f"mini_batch: got {mini_batch}, expected at least 1, or None for the whole sequence")
        if learned_share and (mini_batch is None or not average):
            raise ValueError("learned_share: got True, expected False without average or without a mini_batch")
        if rotary and width // heads % 2:
            raise ValueError(f"heads: got a head width of {width // heads}, expected an even one for rotary positions")
        self.width = self.width_out = width
        self.heads = heads
        self.head_width = width // heads
        self.mini_batch = mini_batch
        self.chunk_sizes = (mini_batch or CHUNK,)
        self.rate = rate
        self.base_rate = base_rate
        self.residual = residual
        self.average = average
        self.rotary = rotary
        self.inner_bias = inner_bias
        self.kvq = nn.Linear(width, 3 * width, bias=False, **factory)
        self.out = nn.Linear(width, width, bias=False, **factory)
        self.rate_gate = nn.Linear(width, heads, **factory) if rate == "learned" else None
        self.share = nn.Parameter(torch.zeros(mini_batch or 0, **factory)) if learned_share else None
        self.gate = nn.Linear(width, width, bias=False, **factory) if gate else None
        self.post_norm = nn.LayerNorm(width, eps=EPSILON, **factory) if post_norm else None
        norm_shape = (2, heads, 1, self.head_width)  # γ and β
        self.norm = nn.Parameter(torch.empty(norm_shape, **factory)) if norm else None
        start = [torch.empty(heads, *shape, **factory) for shape in self._weight_shapes()]
        self.start = nn.ParameterList(start if learned_start else [])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw a small W_0 (std 0.02 for heads of 64, as the authors' code, scaled for others); LN is the identity."""
        with torch.no_grad():
            for weight, (inputs, _) in zip(self.start, self._shapes(), strict=False):
                nn.init.normal_(weight, std=0.16 * inputs**-0.5)
                weight[:, inputs:] = 0  # the bias
            if self.norm is not None:
                self.norm[0], self.norm[1] = 1, 0

    def _shapes(self) -> list[tuple[int, int]]:
        raise NotImplementedError

    def _weight_shapes(self) -> list[tuple[int, int]]:
        """Return the shapes of W, whose last row is the bias where there is one."""
        return [(inputs + self.inner_bias, outputs) for inputs, outputs in self._shapes()]

    def initial_memory(self, batch_size: int, like: Tensor | None = None) -> FastWeights:
        """Return W_0, and accumulated gradients of zero."""
        options = self._like(like)
        zeros = [torch.zeros(batch_size, self.heads, *shape, **options) for shape in self._weight_shapes()]
        weights = [zero.clone() for zero in zeros]
        if len(self.start):
            weights = [w.to(**options).expand(batch_size, *w.shape).contiguous() for w in self.start]
        length = torch.zeros(batch_size, dtype=torch.long, device=options["device"])
        return FastWeights(weights=tuple(weights), gathered=tuple(zeros), length=length, at_border=True)

    # ---- the primal form ---------------------------------------------------------------------------------

    def read(self, x: Tensor, memory: FastWeights, valid: Tensor | None) -> tuple[Tensor, FastWeights]:
        """Compute every step's weights, one inner gradient at a time."""
        views = self._views(x, memory.length, valid)
        weights, gathered, length = memory.weights, memory.gathered, memory.length
        answers = [views.q[:, :, :0]]
        origin = self.initial_memory(len(x), like=x).weights  # W_0, also where the memory has moved
        inner: dict[str, list[Tensor]] = defaultdict(list)
        for t in range(x.shape[1]):
            moves = torch.ones_like(length, dtype=torch.bool) if valid is None else valid[:, t]
            step = views.steps(slice(t, t + 1))
            gathered = add(gathered, self._learn(step, weights).gradients())
            share = self._share_at(self._place(length))[:, None, None, None] if self.average else 1.0
            now = self._take(weights, gathered, share)
            answers.append(self.f(step.q, now))
            inner["loss_before"].append(self._loss(step, weights))
            inner["loss_after"].append(self._loss(step, now))
            inner["movement"].append(_distance(now, origin))
            length = length + moves
            done = moves & (self._place(length) == 0) if self.mini_batch else torch.zeros_like(moves)
            weights = choose(done, now, weights)
            gathered = choose(done, None, gathered)
        note(self, rate=views.rate[..., 0].transpose(1, 2), **{n: torch.cat(v, dim=1) for n, v in inner.items()})
        return self._output(x, torch.cat(answers, dim=2)), FastWeights(
            weights=weights, gathered=gathered, length=length
        )

    def _loss(self, step: Views, weights: tuple[Tensor, ...]) -> Tensor:
        return (self.f(step.k, weights) - step.v).square().sum(-1).transpose(1, 2)  # (B, 1, N)

    # ---- the dual form -----------------------------------------------------------------------------------

    def fast(self, x: Tensor, memory: FastWeights, valid: Tensor | None) -> tuple[Tensor, FastWeights]:
        """Read mini-batch by mini-batch; rows that begin within one are first shifted to their position in it."""
        if x.shape[1] < 4:
            return self.read(x, memory, valid)
        views = self._views(x, memory.length, valid)
        steps = x.shape[1]
        if self.mini_batch and memory.at_border and valid is None and steps % self.mini_batch == 0:
            answers, memory = self._aligned(views, memory, self.mini_batch)
            return self._output(x, answers), replace(memory, at_border=True)
        count = torch.full_like(memory.length, steps) if valid is None else valid.sum(1)
        if self.mini_batch is None or memory.at_border:
            answers, memory = self._dual(views, memory, count, torch.zeros_like(count))
        else:
            place = self._place(memory.length)  # (B,)
            slots = -(-(self.mini_batch - 1 + steps) // self.mini_batch) * self.mini_batch
            answers, memory = self._dual(shifted(views, place, slots, count), memory, count, place)
            index = (place[:, None] + torch.arange(steps, device=x.device))[:, None, :, None]
            answers = answers.gather(2, index.expand(-1, self.heads, -1, self.head_width))
        return self._output(x, answers), memory

    def _aligned(self, views: Views, memory: FastWeights, size: int) -> tuple[Tensor, FastWeights]:
        """Read full mini-batches at whose borders all rows are: only the weights pass from one to the next."""
        weights = memory.weights
        gathered: tuple[Tensor, ...] | None = memory.gathered
        asked = []
        share = self._shares(memory.length, 0, size)
        for chunk in views.split(size):
            lesson = self._learn(chunk, weights)
            asked.append(self._ask(chunk.q, weights, gathered, lesson, share))
            gradients = lesson.gradients() if gathered is None else add(gathered, lesson.gradients())
            weights = self._take(weights, gradients, self._border_share(size))
            gathered = None  # zero after the first mini-batch
        zeros = tuple(torch.zeros_like(g) for g in memory.gathered)
        after = FastWeights(weights=weights, gathered=zeros, length=memory.length + views.q.shape[2])
        return self._finish(views.q, torch.cat(asked, dim=2)), after

    def _dual(self, views: Views, memory: FastWeights, count: Tensor, place: Tensor) -> tuple[Tensor, FastWeights]:
        """Read steps at their positions: those of a row begin at slot `place` and are `count` many."""
        weights, gathered = memory.weights, memory.gathered
        answers = []
        size = self.mini_batch or CHUNK
        steps = views.q.shape[2]
        for begin in range(0, steps, size):
            chunk = views.steps(slice(begin, begin + size))
            lesson = self._learn(chunk, weights)
            share = self._shares(memory.length, begin, chunk.q.shape[2])
            answers.append(self._finish(chunk.q, self._ask(chunk.q, weights, gathered, lesson, share)))
            gathered = add(gathered, lesson.gradients())
            if self.mini_batch is not None:
                done = place + count >= begin + size  # (B,)
                now = self._take(weights, gathered, self._border_share(size))
                weights = choose(done, now, weights)
                gathered = choose(done, None, gathered)
        after = FastWeights(weights=weights, gathered=gathered, length=memory.length + count)
        return torch.cat(answers, dim=2), after

    def _ask(
        self,
        q: Tensor,
        weights: tuple[Tensor, ...],
        gathered: tuple[Tensor, ...] | None,
        lesson: Lesson,
        share: Tensor | float,
    ) -> Tensor:
        """Return f_res(q_t; W_t) for all t: q W_t = q W − share · (q · gathered + Σ_{s≤t} (q · input_s) error_s)."""
        for i, (w, a, e) in enumerate(zip(weights, *lesson, strict=True)):
            q = self._inputs(gelu(q) if i else q)
            learnt = (q @ a.transpose(-1, -2)).tril() @ e  # (B, N, T, out)
            learnt = learnt if gathered is None else learnt + q @ gathered[i]
            q = q @ w - share * learnt
        return q

    # ---- the inner model ---------------------------------------------------------------------------------

    def f(self, u: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        """Return f(u) = u + LN(f_res(u)), without what is switched off. u is (B, N, T, H)."""
        z = u
        for i, w in enumerate(weights):
            z = self._inputs(gelu(z) if i else z) @ w
        return self._finish(u, z)

    def _finish(self, u: Tensor, z: Tensor) -> Tensor:
        z = z if self.norm is None else self.norm[0] * standardised(z)[0] + self.norm[1]
        return u + z if self.residual else z

    def _learn(self, views: Views, weights: tuple[Tensor, ...]) -> Lesson:
        """Compute the gradient of ℓ(W; x_s) = ‖f(k_s; W) − v_s‖² explicitly, back through f_res."""
        inputs = [self._inputs(views.k)]
        before: list[Tensor] = []
        for w in weights:
            before.append(inputs[-1] @ w)
            inputs.append(self._inputs(gelu(before[-1])))
        target = views.v - views.k if self.residual else views.v
        z = before[-1]
        if self.norm is None:
            errors = [2 * (z - target)]
        else:  # ∂‖LN(z) − target‖² / ∂z
            gamma, beta = self.norm
            z_hat, spread = standardised(z)
            errors = [standardised_gradient(z_hat, spread, 2 * gamma * (gamma * z_hat + beta - target))]
        for w, pre in zip(weights[:0:-1], before[-2::-1], strict=True):
            errors.insert(0, errors[0] @ w[..., : pre.shape[-1], :].transpose(-1, -2) * gelu_slope(pre))
        return Lesson(tuple(inputs[:-1]), tuple(views.rate * e for e in errors))

    # ---- small parts -------------------------------------------------------------------------------------

    def _views(self, x: Tensor, length: Tensor, valid: Tensor | None) -> Views:
        """Return θ_K x, θ_V x, θ_Q x and the rate, which is zero at padding, so that nothing is learned from it."""
        k, v, q = self.kvq(x).unflatten(2, (3, self.heads, self.head_width)).unbind(2)  # (B, T, N, H)
        if self.rotary:
            place = self._place(positions_from(length, x.shape[1]))
            k, q = rotate(k, place), rotate(q, place)
        if self.rate_gate is not None:
            rate = self.base_rate / self.head_width * self.rate_gate(x).sigmoid()  # (B, T, N)
        else:
            rate = x.new_full((*x.shape[:2], self.heads), float(self.rate))
        return Views(*(t.transpose(1, 2) for t in (k, v, q, fill_invalid(rate, valid)[..., None])))

    def _inputs(self, u: Tensor) -> Tensor:
        return with_one(u) if self.inner_bias else u

    def _output(self, x: Tensor, answers: Tensor) -> Tensor:
        y = answers.transpose(1, 2).flatten(2)  # (B, T, D)
        y = y if self.post_norm is None else self.post_norm(y)
        return self.out(y if self.gate is None else gelu(self.gate(x)) * y)

    def _place(self, length: Tensor) -> Tensor:
        """Return each row's position within its mini-batch (B,)."""
        return length if self.mini_batch is None else length % self.mini_batch

    def _shares(self, length: Tensor, begin: int, steps: int) -> Tensor | float:
        """Return the factor of the accumulated gradient for a chunk's steps: 1, or 1/(steps since the border).

        (B or 1, 1, T, 1).
        """
        if not self.average:
            return 1.0
        place = torch.arange(begin, begin + steps, device=length.device)[None]
        place = length[:, None] + place if self.mini_batch is None else place - begin
        return self._share_at(place)[:, None, :, None]

    def _share_at(self, place: Tensor) -> Tensor:
        """Return the factor of the accumulated gradient at positions of a mini-batch."""
        # Integers divide to the default dtype, which may have less precision than the layer's.
        share = (place + 1).to(self.out.weight.dtype).reciprocal()
        return share if self.share is None else (share + self.share[place]).clamp(min=0)

    def _border_share(self, size: int) -> Tensor | float:
        """Return the factor at the end of a mini-batch."""
        if self.share is not None:
            return (1 / size + self.share[-1]).clamp(min=0)
        return 1 / size if self.average else 1.0

    def _take(
        self, weights: tuple[Tensor, ...], gathered: tuple[Tensor, ...], share: Tensor | float
    ) -> tuple[Tensor, ...]:
        return tuple(w - share * g for w, g in zip(weights, gathered, strict=True))


def _distance(now: tuple[Tensor, ...], before: tuple[Tensor, ...]) -> Tensor:
    """Return ‖W − W′‖ over all weights of each head (B, 1, N)."""
    squares = [(a - b).square().sum((-1, -2)) for a, b in zip(now, before, strict=True)]
    return torch.stack(squares).sum(0).sqrt()[:, None]


class TTTLinear(TTT):
    """Test-time training of a linear inner model, f_res(u; W) = u W. See `TTT` for equations and switches.

    >>> layer = rc.TTTLinear(8, 2, mini_batch=4)
    >>> y, memory = layer(torch.randn(1, 10, 8))
    >>> y, memory = layer(torch.randn(1, 1, 8), memory)  # any cut is legal, also inside a mini-batch
    >>> memory.length.tolist()
    [11]
    """

    kernel = "ttt-linear"

    def _aligned(self, views: Views, memory: FastWeights, size: int) -> tuple[Tensor, FastWeights]:
        if self._leaves_gradients_to_autograd(views):
            return super()._aligned(views, memory, size)
        return self._read_slots(views, memory, size, None, memory.length + views.q.shape[2])

    def _dual(self, views: Views, memory: FastWeights, count: Tensor, place: Tensor) -> tuple[Tensor, FastWeights]:
        size = self.mini_batch
        if size is None or self._leaves_gradients_to_autograd(views):
            return super()._dual(views, memory, count, place)
        borders = torch.arange(size, views.q.shape[2] + size, size, device=count.device)
        is_open = (place + count < borders[:, None]).repeat_interleave(self.heads, 1)  # (M, B·N)
        return self._read_slots(views, memory, size, is_open, memory.length + count)

    def _leaves_gradients_to_autograd(self, views: Views) -> bool:
        return torch.compiler.is_compiling() or torch.is_autocast_enabled(views.q.device.type)

    def _read_slots(
        self, views: Views, memory: FastWeights, size: int, is_open: Tensor | None, length: Tensor
    ) -> tuple[Tensor, FastWeights]:
        """Read with explicit outer gradients: see `dual_linear`."""
        shape = memory.weights[0].shape
        target = views.v - views.k if self.residual else views.v
        share = self._share_at(torch.arange(size, device=length.device)) if self.average else views.q.new_ones(size)
        border, opened = borders(self._border_share(size), is_open, views.q)
        slots = Slots(
            k=in_slots(self._inputs(views.k), size),
            target=in_slots(target, size),
            q=in_slots(self._inputs(views.q), size),
            rate=in_slots(views.rate, size),
            weight=memory.weights[0].flatten(0, 1),
            gathered=memory.gathered[0].flatten(0, 1),
            share=share[:, None],
            border=border,
            open=opened,
            gamma=None if self.norm is None else self.norm[0].repeat(shape[0], 1, 1),
            beta=None if self.norm is None else self.norm[1].repeat(shape[0], 1, 1),
        )
        asked, weight, left = read_slots(slots)
        after = FastWeights(weights=(weight.view(shape),), gathered=(left.view(shape),), length=length)
        answers = asked.transpose(0, 1).reshape(*views.q.shape[:2], len(asked) * size, self.head_width)[
            :, :, : views.q.shape[2]
        ]
        return self._finish(views.q, answers), after

    def _shapes(self) -> list[tuple[int, int]]:
        return [(self.head_width, self.head_width)]


class TTTMLP(TTT):
    """Test-time training of a two-layer inner model, f_res(u; W) = gelu(u W_1) W_2, four times as wide inside.

    See `TTT` for equations and switches; the base rate is 0.1 here, as in the paper.

    >>> layer = rc.TTTMLP(8, 2, mini_batch=4)
    >>> y, memory = layer(torch.randn(1, 10, 8))
    >>> tuple(y.shape), memory.length.tolist()
    ((1, 10, 8), [10])
    """

    def __init__(self, width: int, heads: int, *, base_rate: float = 0.1, **options: Any) -> None:
        super().__init__(width, heads, base_rate=base_rate, **options)

    def _shapes(self) -> list[tuple[int, int]]:
        return [(self.head_width, 4 * self.head_width), (4 * self.head_width, self.head_width)]
