# mypy: ignore-errors
"""Triton kernels of TTT-Linear: two time loops, forward and backward, and three kernels parallel over chunks.

A mini-batch has S steps; a chunk of at most 64 steps is a whole number of them, and begins with the weights W_c. Let
M_ts be c_t for s ≤ t in one mini-batch, σ for s in an earlier mini-batch of the chunk, else 0, and L_ts = 1 for the
latter, else 0. The weights within a chunk are never written: Q W = Q W_c − (M ∘ Q Kᵀ) E.

    learn         (loop)      Z = K W,  φ = B(2γ²ẑ + 2γ(β − t)),  E = η φ,  W ← W − σ Kᵀ E;  stores φ, and W_c per chunk
    ask           (parallel)  A = Q W_c − (M ∘ Q Kᵀ) E,  y = q + γ LN(A) + β
    ask_backward  (parallel)  ∂A from ∂y;  the part of ∂E that comes from the same mini-batch;  ẑ, r, mean(g ẑ) of Z
    unlearn       (loop)      ∂E ← ∂E − σ K D,  ∂Z by the derivative of φ,  D ← D + Qᵀ ∂A + Kᵀ ∂Z;  stores D per chunk
    join          (parallel)  ∂q = ∂A W_cᵀ − (M ∘ ∂A Eᵀ) K
                              ∂k = ∂Z W_cᵀ − σ E D_cᵀ − (M ∘ ∂A Eᵀ)ᵀ Q − σ (L ∘ ∂Z Eᵀ) K − σ (L ∘ ∂Z Eᵀ)ᵀ K − ∂t

The loops keep Wᵀ and Dᵀ, (outputs, inputs): their result in registers is then the left operand of the next product
without passing through shared memory. B(g) = (g − mean g − ẑ mean(g ẑ)) r is the gradient through LN, r = 1/√(var + ε).
Rows of W have their mean over the outputs subtracted, which LN ignores and no E changes, so that Z needs no mean.
All sums over the outputs are taken in one reduction: with a = 2γ², δ = 2γ(β − t), ẑ = r z,

    mean g = mean(a z) r + mean δ        mean(g ẑ) = mean(a z²) r² + mean(δ z) r
"""

import triton
import triton.language as tl


@triton.jit
def _add5(a0, a1, a2, a3, a4, b0, b1, b2, b3, b4):
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4


@triton.jit
def _row(place, count, b, T, RAGGED: tl.constexpr):
    """Return the slot at which a row begins, and the slot after its last step."""
    if RAGGED:
        begin = tl.load(place + b)
        return begin, begin + tl.load(count + b)
    else:
        return 0, T


@triton.jit
def _phi(z, t, gamma, beta, H: tl.constexpr, EPS: tl.constexpr):
    """Return φ for centred z (H, S) and the target t."""
    a = 2 * gamma * gamma
    offset = 2 * gamma * (beta - t)
    az = a * z
    here = offset + 0 * z  # as z in the registers of the same threads: else all operands move through shared memory
    squares, az, azz, oz, o = tl.reduce((z * z, az, az * z, offset * z, here), 0, _add5)
    r = 1 / tl.sqrt(squares / H + EPS)
    mean = (r * az + o) / H
    inner = (r * r * azz + r * oz) / H
    z_hat = z * r[None]
    return (a * z_hat + offset - mean[None] - z_hat * inner[None]) * r[None]


@triton.jit
def learn(
    k, v, rate, start, gathered, gamma, beta, border, place, count,
    phi, checkpoints, last, left,
    T, chunks, k_b, k_t, k_n, v_b, v_t, v_n,
    N: tl.constexpr, H: tl.constexpr, S: tl.constexpr, TILE: tl.constexpr, PER_CHUNK: tl.constexpr,
    NORM: tl.constexpr, RESIDUAL: tl.constexpr, RAGGED: tl.constexpr, GATHERED: tl.constexpr,
    PRECISION: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Read all mini-batches of one head of one row."""
    bn = tl.program_id(0).to(tl.int64)
    b = bn // N
    n = bn % N
    begin, end = _row(place, count, b, T, RAGGED)
    h = tl.arange(0, H)
    i = tl.arange(0, TILE)
    dtype = k.dtype.element_ty
    square = h[:, None] + h[None] * H  # of (outputs, inputs) in memory (inputs, outputs)
    k += b * k_b + n * k_n
    v += b * v_b + n * v_n
    phi += (b * T * N + n) * H
    rate += b * T * N + n
    w = tl.load(start + bn * H * H + square).to(tl.float32)
    if NORM:
        g = tl.load(gamma + n * H + h).to(tl.float32)[:, None]
        c = tl.load(beta + n * H + h).to(tl.float32)[:, None]
        mean = tl.sum(w, 0) / H
        w -= mean[None]
    sigma = tl.load(border).to(tl.float32)
    batches = tl.cdiv(end, S)
    t = i - begin
    eta_next = tl.load(rate + t * N, mask=(i < S) & (t >= 0) & (t < end - begin), other=0.0)
    for j in range(batches):
        if j % PER_CHUNK == 0:
            tl.store(checkpoints + (bn * chunks + j // PER_CHUNK) * H * H + square, w.to(dtype))
        t = j * S + i - begin
        real = (i < S) & (t >= 0) & (t < end - begin)
        key = tl.load(k + t[:, None] * k_t + h[None], mask=real[:, None], other=0.0)  # (S, H)
        key_t = tl.load(k + t[None] * k_t + h[:, None], mask=real[None], other=0.0)
        target = tl.load(v + t[None] * v_t + h[:, None], mask=real[None], other=0.0).to(tl.float32)
        if RESIDUAL:
            target -= key_t.to(tl.float32)
        eta = eta_next.to(tl.float32)
        t += S
        eta_next = tl.load(rate + t * N, mask=(i < S) & (t >= 0) & (t < end - begin), other=0.0)
        t -= S
        z = tl.dot(w.to(dtype), tl.trans(key), input_precision=PRECISION)  # (H, S)
        if NORM:
            error = _phi(z, target, g, c, H, EPS)
        else:
            error = 2 * (z - target)
        tl.store(phi + t[None] * N * H + h[:, None], error.to(dtype), mask=real[None])
        is_done = (j + 1) * S <= end
        scale = tl.where(is_done, -sigma, 0.0)
        if GATHERED:
            if j == 0:
                before = tl.load(gathered + bn * H * H + square).to(tl.float32)
                if NORM:
                    before_mean = tl.sum(before, 0) / H
                    before -= before_mean[None]
                    mean += scale * before_mean
                w += scale * before
        w = tl.dot((error * (eta * scale)[None]).to(dtype), key, w, input_precision=PRECISION)
    if RAGGED:
        found = tl.zeros((H, H), tl.float32)
        if GATHERED:
            if end < S:
                found += tl.load(gathered + bn * H * H + square).to(tl.float32)
        if end % S > 0:
            t = (batches - 1) * S + i - begin
            real = (i < S) & (t >= 0) & (t < end - begin)
            key = tl.load(k + t[:, None] * k_t + h[None], mask=real[:, None], other=0.0)
            eta = tl.load(rate + t * N, mask=real, other=0.0).to(tl.float32)
            key_t = tl.load(k + t[None] * k_t + h[:, None], mask=real[None], other=0.0)
            target = tl.load(v + t[None] * v_t + h[:, None], mask=real[None], other=0.0).to(tl.float32)
            if RESIDUAL:
                target -= key_t.to(tl.float32)
            z = tl.dot(w.to(dtype), tl.trans(key), input_precision=PRECISION)
            if NORM:
                error = _phi(z, target, g, c, H, EPS)
            else:
                error = 2 * (z - target)
            found = tl.dot((error * eta[None]).to(dtype), key, found, input_precision=PRECISION)
        tl.store(left + bn * H * H + square, found.to(left.dtype.element_ty))
    if NORM:
        w += mean[None]
    tl.store(last + bn * H * H + square, w.to(last.dtype.element_ty))


@triton.jit
def _masks(shares, sigma, S: tl.constexpr, C: tl.constexpr):
    """Return M and L (C, C), and each slot's share c."""
    i = tl.arange(0, C)
    share = tl.load(shares + i % S).to(tl.float32)
    own = i[:, None] // S == i[None] // S
    earlier = i[:, None] // S > i[None] // S
    within = own & (i[:, None] >= i[None])
    return tl.where(within, share[:, None], tl.where(earlier, sigma, 0.0)), earlier, within, share


@triton.jit
def _asked(
    query, key, error, w, mask, share, sigma, gathered, ch, square, S: tl.constexpr, C: tl.constexpr,
    GATHERED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return A (C, H), and the scores Q Kᵀ."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    answer = tl.dot(query, w, input_precision=PRECISION)
    if GATHERED:
        if ch == 0:
            before = tl.load(gathered + square).to(query.dtype)
            i = tl.arange(0, C)
            answer -= tl.where(i < S, share, sigma)[:, None] * tl.dot(query, before, input_precision=PRECISION)
    answer -= tl.dot((mask * scores).to(query.dtype), error, input_precision=PRECISION)
    return answer, scores


@triton.jit
def ask(
    k, q, rate, phi, checkpoints, gathered, gamma, beta, shares, border, place, count,
    y,
    T, chunks, k_b, k_t, k_n, q_b, q_t, q_n,
    N: tl.constexpr, H: tl.constexpr, S: tl.constexpr, PER_CHUNK: tl.constexpr, C: tl.constexpr,
    NORM: tl.constexpr, RESIDUAL: tl.constexpr, RAGGED: tl.constexpr, GATHERED: tl.constexpr,
    PRECISION: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Evaluate the inner model at the queries of one chunk."""
    ch = tl.program_id(0)
    bn = tl.program_id(1).to(tl.int64)
    b = bn // N
    n = bn % N
    begin, end = _row(place, count, b, T, RAGGED)
    h = tl.arange(0, H)
    i = tl.arange(0, C)
    dtype = k.dtype.element_ty
    t = ch * PER_CHUNK * S + i - begin
    real = (i < PER_CHUNK * S) & (t >= 0) & (t < end - begin)
    if ch * PER_CHUNK * S < end:
        square = h[:, None] * H + h[None]
        sigma = tl.load(border).to(tl.float32)
        rows = t[:, None] * N * H + (b * T * N + n) * H + h[None]
        key = tl.load(k + b * k_b + n * k_n + t[:, None] * k_t + h[None], mask=real[:, None], other=0.0)
        query = tl.load(q + b * q_b + n * q_n + t[:, None] * q_t + h[None], mask=real[:, None], other=0.0)
        eta = tl.load(rate + (b * T + t) * N + n, mask=real, other=0.0).to(tl.float32)
        error = tl.load(phi + rows, mask=real[:, None], other=0.0)
        error = (error.to(tl.float32) * eta[:, None]).to(dtype)
        w = tl.load(checkpoints + (bn * chunks + ch) * H * H + square)
        mask, _, _, share = _masks(shares, sigma, S, C)
        z, _ = _asked(
            query, key, error, w, mask, share, sigma, gathered + bn * H * H, ch, square, S, C, GATHERED, PRECISION
        )
        if NORM:
            z -= (tl.sum(z, 1) / H)[:, None]
            z *= (1 / tl.sqrt(tl.sum(z * z, 1) / H + EPS))[:, None]
            z = z * tl.load(gamma + n * H + h).to(tl.float32)[None] + tl.load(beta + n * H + h).to(tl.float32)[None]
        if RESIDUAL:
            z += query.to(tl.float32)
        tl.store(y + rows, z.to(y.dtype.element_ty), mask=real[:, None])


@triton.jit
def ask_backward(
    k, q, v, rate, phi, checkpoints, gathered, gamma, beta, shares, border, place, count, dy,
    d_answers, d_errors, z_hats, scalars, d_norm, d_share,
    T, chunks, k_b, k_t, k_n, q_b, q_t, q_n, v_b, v_t, v_n,
    N: tl.constexpr, H: tl.constexpr, S: tl.constexpr, PER_CHUNK: tl.constexpr, C: tl.constexpr,
    NORM: tl.constexpr, RESIDUAL: tl.constexpr, RAGGED: tl.constexpr, GATHERED: tl.constexpr,
    SHARED: tl.constexpr, PRECISION: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Go back from the outputs of one chunk to A, and to the errors of the same mini-batch; and compute Z anew."""
    ch = tl.program_id(0)
    bn = tl.program_id(1).to(tl.int64)
    b = bn // N
    n = bn % N
    begin, end = _row(place, count, b, T, RAGGED)
    h = tl.arange(0, H)
    i = tl.arange(0, C)
    dtype = k.dtype.element_ty
    t = ch * PER_CHUNK * S + i - begin
    real = (i < PER_CHUNK * S) & (t >= 0) & (t < end - begin)
    if ch * PER_CHUNK * S < end:
        square = h[:, None] * H + h[None]
        sigma = tl.load(border).to(tl.float32)
        rows = t[:, None] * N * H + (b * T * N + n) * H + h[None]
        steps = (b * T + t) * N + n
        key = tl.load(k + b * k_b + n * k_n + t[:, None] * k_t + h[None], mask=real[:, None], other=0.0)
        query = tl.load(q + b * q_b + n * q_n + t[:, None] * q_t + h[None], mask=real[:, None], other=0.0)
        eta = tl.load(rate + steps, mask=real, other=0.0).to(tl.float32)
        error = tl.load(phi + rows, mask=real[:, None], other=0.0)
        error = (error.to(tl.float32) * eta[:, None]).to(dtype)
        w = tl.load(checkpoints + (bn * chunks + ch) * H * H + square)
        d = tl.load(dy + rows, mask=real[:, None], other=0.0).to(tl.float32)
        mask, earlier, within, share = _masks(shares, sigma, S, C)
        answer, scores = _asked(
            query, key, error, w, mask, share, sigma, gathered + bn * H * H, ch, square, S, C, GATHERED, PRECISION
        )
        if NORM:
            g = tl.load(gamma + n * H + h).to(tl.float32)[None]
            c = tl.load(beta + n * H + h).to(tl.float32)[None]
            answer -= (tl.sum(answer, 1) / H)[:, None]
            root = 1 / tl.sqrt(tl.sum(answer * answer, 1) / H + EPS)
            answer *= root[:, None]
            norm_at = d_norm + (bn * chunks + ch) * 4 * H + h
            tl.store(norm_at, tl.sum(d * answer, 0))
            tl.store(norm_at + H, tl.sum(d, 0))
            d *= g
            d -= (tl.sum(d, 1) / H)[:, None] + answer * (tl.sum(d * answer, 1) / H)[:, None]
            d *= root[:, None]
        da = d.to(dtype)
        tl.store(d_answers + rows, da, mask=real[:, None])
        inside = tl.where(within, -share[:, None] * scores, 0.0)
        de = tl.dot(tl.trans(inside.to(dtype)), da, input_precision=PRECISION)
        tl.store(d_errors + rows, de.to(dtype), mask=real[:, None])
        if SHARED:
            d_score = tl.dot(da, tl.trans(error), input_precision=PRECISION)
            found = -tl.sum(tl.where(within, d_score * scores, 0.0), 1)
            if GATHERED:
                if ch == 0:
                    before = tl.load(gathered + bn * H * H + square).to(dtype)
                    asked = tl.dot(query, before, input_precision=PRECISION)
                    found -= tl.where(i < S, tl.sum(asked * da.to(tl.float32), 1), 0.0)
            tl.store(d_share + steps, found, mask=real)
        if NORM:
            among = tl.dot(key, tl.trans(key), input_precision=PRECISION)
            z = tl.dot(key, w, input_precision=PRECISION)
            z -= tl.dot(tl.where(earlier, sigma * among, 0.0).to(dtype), error, input_precision=PRECISION)
            if GATHERED:
                if ch == 0:
                    before = tl.load(gathered + bn * H * H + square).to(dtype)
                    z -= tl.where(i < S, 0.0, sigma)[:, None] * tl.dot(key, before, input_precision=PRECISION)
            z -= (tl.sum(z, 1) / H)[:, None]
            root = 1 / tl.sqrt(tl.sum(z * z, 1) / H + EPS)
            z *= root[:, None]
            target = tl.load(v + b * v_b + n * v_n + t[:, None] * v_t + h[None], mask=real[:, None], other=0.0)
            target = target.to(tl.float32)
            if RESIDUAL:
                target -= key.to(tl.float32)
            gradient = 2 * g * (g * z + c - target)
            tl.store(z_hats + rows, z.to(dtype), mask=real[:, None])
            a = 2 * g * g
            at = scalars + steps * 4
            tl.store(at, root, mask=real)
            tl.store(at + 1, tl.sum(gradient * z, 1) / H, mask=real)
            tl.store(at + 2, tl.sum(a * z, 1) / H, mask=real)
            tl.store(at + 3, tl.sum(a * z * z, 1) / H, mask=real)


@triton.jit
def unlearn(
    k, q, rate, phi, z_hats, scalars, d_answers, d_errors, gamma, border, d_last, d_left, place, count,
    dz, hs, d_rate, d_border, checkpoints, first,
    T, chunks, k_b, k_t, k_n, q_b, q_t, q_n,
    N: tl.constexpr, H: tl.constexpr, S: tl.constexpr, TILE: tl.constexpr, PER_CHUNK: tl.constexpr,
    NORM: tl.constexpr, RAGGED: tl.constexpr, LEFT: tl.constexpr, SHARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Go back through all mini-batches of one head of one row."""
    bn = tl.program_id(0).to(tl.int64)
    b = bn // N
    n = bn % N
    begin, end = _row(place, count, b, T, RAGGED)
    h = tl.arange(0, H)
    i = tl.arange(0, TILE)
    dtype = k.dtype.element_ty
    square = h[:, None] + h[None] * H
    k += b * k_b + n * k_n
    q += b * q_b + n * q_n
    at = (b * T * N + n) * H
    rate += b * T * N + n
    scalars += (b * T * N + n) * 4
    d_rate += b * T * N + n
    d_border += b * T * N + n
    d = tl.load(d_last + bn * H * H + square).to(tl.float32)
    sigma = tl.load(border).to(tl.float32)
    if NORM:
        g = tl.load(gamma + n * H + h).to(tl.float32)[:, None]
        a = 2 * g * g
        a_mean = tl.sum(a, 0) / H
    batches = tl.cdiv(end, S)
    t = (batches - 1) * S + i - begin
    real = (i < S) & (t >= 0) & (t < end - begin)
    eta_next = tl.load(rate + t * N, mask=real, other=0.0)
    r_next = tl.load(scalars + t * N * 4, mask=real, other=0.0)
    inner_next = tl.load(scalars + t * N * 4 + 1, mask=real, other=0.0)
    az_next = tl.load(scalars + t * N * 4 + 2, mask=real, other=0.0)
    azz_next = tl.load(scalars + t * N * 4 + 3, mask=real, other=0.0)
    for back in range(batches):
        j = batches - 1 - back
        if (j + 1) % PER_CHUNK == 0 or back == 0:
            tl.store(checkpoints + (bn * chunks + j // PER_CHUNK) * H * H + square, d.to(dtype))
        t = j * S + i - begin
        real = (i < S) & (t >= 0) & (t < end - begin)
        key = tl.load(k + t[:, None] * k_t + h[None], mask=real[:, None], other=0.0)  # (S, H)
        query = tl.load(q + t[:, None] * q_t + h[None], mask=real[:, None], other=0.0)
        across = at + t[None] * N * H + h[:, None]  # (H, S)
        da = tl.load(d_answers + across, mask=real[None], other=0.0)
        p = tl.load(d_errors + across, mask=real[None], other=0.0).to(tl.float32)
        value = tl.load(phi + across, mask=real[None], other=0.0).to(tl.float32)
        eta = eta_next.to(tl.float32)
        before = t - S
        real_before = (i < S) & (before >= 0) & (before < end - begin)
        eta_next = tl.load(rate + before * N, mask=real_before, other=0.0)
        is_done = (j + 1) * S <= end
        through = tl.dot(d.to(dtype), tl.trans(key), input_precision=PRECISION)  # (H, S)
        p -= tl.where(is_done, sigma, 0.0) * through
        if LEFT:
            if not is_done:
                dg = tl.load(d_left + bn * H * H + square).to(dtype)
                p += tl.dot(dg, tl.trans(key), input_precision=PRECISION)
        if SHARED:
            found = tl.where(is_done, -tl.sum(through * value, 0) * eta, 0.0)
            tl.store(d_border + t * N, found, mask=real)
        if NORM:
            z_hat = tl.load(z_hats + across, mask=real[None], other=0.0).to(tl.float32)
            r = r_next
            inner = inner_next
            az = az_next
            azz = azz_next
            r_next = tl.load(scalars + before * N * 4, mask=real_before, other=0.0)
            inner_next = tl.load(scalars + before * N * 4 + 1, mask=real_before, other=0.0)
            az_next = tl.load(scalars + before * N * 4 + 2, mask=real_before, other=0.0)
            azz_next = tl.load(scalars + before * N * 4 + 3, mask=real_before, other=0.0)
            p_sum, on_z, on_value, ap, azp = tl.reduce((p, p * z_hat, p * value, a * p, a * z_hat * p), 0, _add5)
            tl.store(d_rate + t * N, on_value, mask=real)
            p_mean = eta * p_sum / H
            on_z = eta * on_z / H
            on_value = eta * on_value / H
            h_mean = (eta * ap / H - a_mean * p_mean - az * on_z) * r
            h_on_z = (eta * azp / H - az * p_mean - azz * on_z) * r
            hh = (p * eta[None] - p_mean[None] - z_hat * on_z[None]) * r[None]
            error = (a * hh - h_mean[None] - z_hat * h_on_z[None]) * r[None]
            error -= r[None] * (inner[None] * hh + on_z[None] * value + on_value[None] * z_hat)
        else:
            tl.store(d_rate + t * N, tl.sum(p * value, 0), mask=real)
            hh = p * eta[None]
            error = 2 * hh
        back_z = error.to(dtype)
        tl.store(dz + across, back_z, mask=real[None])
        tl.store(hs + across, hh.to(dtype), mask=real[None])
        d = tl.dot(da, query, d, input_precision=PRECISION)
        d = tl.dot(back_z, key, d, input_precision=PRECISION)
    tl.store(first + bn * H * H + square, d)


@triton.jit
def join(
    k, q, v, rate, phi, checkpoints, gathered, gamma, beta, shares, border, place, count, dy,
    d_answers, z_hats, dz, hs, d_checkpoints, d_left,
    dk, dq, dv, d_norm,
    T, chunks, k_b, k_t, k_n, q_b, q_t, q_n, v_b, v_t, v_n,
    N: tl.constexpr, H: tl.constexpr, S: tl.constexpr, PER_CHUNK: tl.constexpr, C: tl.constexpr,
    NORM: tl.constexpr, RESIDUAL: tl.constexpr, RAGGED: tl.constexpr, GATHERED: tl.constexpr,
    LEFT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of q, k, v of one chunk, and its part of those of γ and β."""
    ch = tl.program_id(0)
    bn = tl.program_id(1).to(tl.int64)
    b = bn // N
    n = bn % N
    begin, end = _row(place, count, b, T, RAGGED)
    h = tl.arange(0, H)
    i = tl.arange(0, C)
    dtype = k.dtype.element_ty
    t = ch * PER_CHUNK * S + i - begin
    real = (i < PER_CHUNK * S) & (t >= 0) & (t < end - begin)
    if ch * PER_CHUNK * S < end:
        square = h[:, None] * H + h[None]
        sigma = tl.load(border).to(tl.float32)
        rows = t[:, None] * N * H + (b * T * N + n) * H + h[None]
        keep = real[:, None]
        key = tl.load(k + b * k_b + n * k_n + t[:, None] * k_t + h[None], mask=keep, other=0.0)
        query = tl.load(q + b * q_b + n * q_n + t[:, None] * q_t + h[None], mask=keep, other=0.0)
        eta = tl.load(rate + (b * T + t) * N + n, mask=real, other=0.0).to(tl.float32)
        error = tl.load(phi + rows, mask=keep, other=0.0)
        error = (error.to(tl.float32) * eta[:, None]).to(dtype)
        da = tl.load(d_answers + rows, mask=keep, other=0.0)
        back_z = tl.load(dz + rows, mask=keep, other=0.0)
        mask, earlier, _, share = _masks(shares, sigma, S, C)
        w = tl.trans(tl.load(checkpoints + (bn * chunks + ch) * H * H + square))  # (outputs, inputs)
        d = tl.trans(tl.load(d_checkpoints + (bn * chunks + ch) * H * H + square))
        asked = (-mask * tl.dot(da, tl.trans(error), input_precision=PRECISION)).to(dtype)
        taught = tl.where(earlier, -sigma * tl.dot(back_z, tl.trans(error), input_precision=PRECISION), 0.0).to(dtype)
        new_q = tl.dot(da, w, input_precision=PRECISION)
        new_q = tl.dot(asked, key, new_q, input_precision=PRECISION)
        finished = (i // S + 1 + ch * PER_CHUNK) * S <= end
        new_k = tl.dot(error, d, input_precision=PRECISION)
        new_k *= tl.where(finished, -sigma, 0.0)[:, None]
        if LEFT:
            if end % S > 0:
                dg = tl.trans(tl.load(d_left + bn * H * H + square)).to(dtype)
                new_k += tl.where(finished, 0.0, 1.0)[:, None] * tl.dot(error, dg, input_precision=PRECISION)
        new_k = tl.dot(back_z, w, new_k, input_precision=PRECISION)
        new_k = tl.dot(tl.trans(asked), query, new_k, input_precision=PRECISION)
        new_k = tl.dot(taught, key, new_k, input_precision=PRECISION)
        new_k = tl.dot(tl.trans(taught), key, new_k, input_precision=PRECISION)
        if GATHERED:
            if ch == 0:
                before = tl.trans(tl.load(gathered + bn * H * H + square)).to(dtype)
                new_q -= tl.where(i < S, share, sigma)[:, None] * tl.dot(da, before, input_precision=PRECISION)
                new_k -= tl.where(i < S, 0.0, sigma)[:, None] * tl.dot(back_z, before, input_precision=PRECISION)
        hh = tl.load(hs + rows, mask=keep, other=0.0).to(tl.float32)
        value = tl.load(v + b * v_b + n * v_n + t[:, None] * v_t + h[None], mask=keep, other=0.0).to(tl.float32)
        d_target = -2 * hh
        if NORM:
            g = tl.load(gamma + n * H + h).to(tl.float32)[None]
            c = tl.load(beta + n * H + h).to(tl.float32)[None]
            z_hat = tl.load(z_hats + rows, mask=keep, other=0.0).to(tl.float32)
            target = value
            if RESIDUAL:
                target -= key.to(tl.float32)
            d_target *= g
            norm_at = d_norm + ((bn * chunks + ch) * 4 + 2) * H + h
            tl.store(norm_at, tl.sum(2 * hh * (c - target + 2 * g * z_hat), 0))
            tl.store(norm_at + H, -tl.sum(d_target, 0))
        if RESIDUAL:
            new_q += tl.load(dy + rows, mask=keep, other=0.0).to(tl.float32)
            new_k -= d_target
        tl.store(dq + rows, new_q.to(dtype), mask=keep)
        tl.store(dk + rows, new_k.to(dtype), mask=keep)
        tl.store(dv + rows, d_target.to(dtype), mask=keep)
