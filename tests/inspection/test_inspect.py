"""Numbers of a trace against the fast forms, against torch's own modules, and against gradients taken one by one."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import recollect as rc
from recollect.inspection.jacobians import product_norms, step_jacobians

BYTES = rc.Tokenizer("byte")
TEXT = "to be, or not to be"
LEARNED = ("window", "rnn", "gru", "lstm", "linear-attention", "transformer", "ttt-linear", "ttt-mlp")


def make(family: str, **options: object) -> rc.LanguageModel:
    torch.manual_seed(1)
    return rc.LanguageModel(family, 256, **{"width": 16, "layers": 2, **options}).double().eval()


def ids_of(text: str) -> torch.Tensor:
    return torch.tensor([list(text.encode())])


# ---- the readable form is the fast one -----------------------------------------------------------


@pytest.mark.parametrize("family", LEARNED)
def test_what_is_recorded_is_what_the_fast_form_computes(family: str) -> None:
    model = make(family)
    trace = rc.inspect(model, TEXT, tokenizer=BYTES)
    logits, memory = model(ids_of(TEXT))
    p = logits[0].softmax(-1).detach().numpy()
    np.testing.assert_allclose(trace["next.probabilities"][:, 0], p.max(1), rtol=1e-9)
    np.testing.assert_allclose(trace["loss"][1:], -np.log(p[np.arange(18), ids_of(TEXT)[0, 1:]]), rtol=1e-9)
    assert np.isnan(trace["loss"][0])
    assert trace["memory.bytes"][-1] == memory.nbytes
    for number, state in enumerate([own for own in memory.layers if hasattr(own, "hidden")]):
        np.testing.assert_allclose(trace[f"layers.{number}.hidden"][-1], state.hidden[0].detach(), rtol=1e-9)
        if family == "lstm":
            np.testing.assert_allclose(trace[f"layers.{number}.cell"][-1], state.cell[0].detach(), rtol=1e-9)


def test_the_probabilities_are_those_of_a_float32_model_too() -> None:
    model = make("lstm").float()
    trace = rc.inspect(model, TEXT, tokenizer=BYTES)
    p = model(ids_of(TEXT))[0][0].softmax(-1).detach().double().amax(1)
    np.testing.assert_allclose(trace["next.probabilities"][:, 0], p, rtol=1e-5)


# ---- torch's own modules, computed apart ---------------------------------------------------------


def test_gates_are_those_of_nn_lstm_computed_apart() -> None:
    torch.manual_seed(0)
    theirs = nn.LSTM(5, 7, batch_first=True, dtype=torch.float64)
    x = torch.randn(11, 5, dtype=torch.float64)
    trace = rc.inspect(rc.LSTM.from_torch(theirs), x)
    with torch.no_grad():
        h = theirs(x[None])[0][0]
        before = torch.cat([torch.zeros(1, 7), h[:-1]])  # h_{t−1}
        total = x @ theirs.weight_ih_l0.T + before @ theirs.weight_hh_l0.T + theirs.bias_ih_l0 + theirs.bias_hh_l0
        i, f, g, o = total.chunk(4, dim=1)
    np.testing.assert_allclose(trace["layers.0.hidden"], h, rtol=1e-10)
    np.testing.assert_allclose(trace["layers.0.input_gate"], i.sigmoid(), rtol=1e-10)
    np.testing.assert_allclose(trace["layers.0.forget_gate"], f.sigmoid(), rtol=1e-10)
    np.testing.assert_allclose(trace["layers.0.candidate"], g.tanh(), rtol=1e-10)
    np.testing.assert_allclose(trace["layers.0.output_gate"], o.sigmoid(), rtol=1e-10)
    cell = torch.zeros(7, dtype=torch.float64)
    for t in range(11):
        cell = f[t].sigmoid() * cell + i[t].sigmoid() * g[t].tanh()
        np.testing.assert_allclose(trace["layers.0.cell"][t], cell, rtol=1e-10)


def test_weights_are_those_of_nn_multihead_attention() -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    ours = rc.SelfAttention(8, 2, dtype=torch.float64)
    ours.qkv.weight.data, ours.qkv.bias.data = theirs.in_proj_weight.data, theirs.in_proj_bias.data
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    later = torch.ones(9, 9, dtype=torch.bool).triu(1)
    _, weights = theirs(x, x, x, attn_mask=later, average_attn_weights=False)
    trace = rc.inspect(ours, x[0])
    np.testing.assert_allclose(trace["layers.0.weights"], weights[0].detach(), rtol=1e-10)
    scores = trace["layers.0.scores"]
    assert np.isneginf(scores[:, later.numpy()]).all()
    entropy = torch.special.entr(weights[0]).sum(-1).detach()
    np.testing.assert_allclose(trace["layers.0.entropy"], entropy, atol=1e-12)
    mean = weights[0].mean(0).detach().numpy() / 2 + np.eye(9) / 2
    np.testing.assert_allclose(trace["rollout"], mean, rtol=1e-10)  # of one layer


# ---- gradients and what is left out --------------------------------------------------------------


def one_by_one(model: rc.LanguageModel, ids: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return reach and saliency by a backward pass for each prediction, through the readable form."""
    table = model.body[0].table.weight
    x = table.detach()[ids[0]][None].requires_grad_()
    inner = rc.Stack(*list(model.body)[1:])
    steps = x.shape[1]
    reach, saliency = np.zeros((steps, steps)), np.zeros((steps, steps))
    with rc.record(inner):
        logprobs = inner(x)[0][0].log_softmax(-1)
        targets = [*ids[0, 1:].tolist(), int(logprobs[-1].argmax())]
        for t in range(steps):
            (gradient,) = torch.autograd.grad(logprobs[t, targets[t]], x, retain_graph=True)
            reach[t] = gradient[0].norm(dim=1)
            saliency[t] = (gradient[0] * x[0]).sum(1).detach()
    return reach, saliency


@pytest.mark.parametrize("family", LEARNED)
def test_reach_is_that_of_a_backward_pass_for_each_prediction(family: str) -> None:
    model = make(family)
    trace = rc.inspect(model, TEXT, tokenizer=BYTES)
    reach, saliency = one_by_one(model, ids_of(TEXT))
    np.testing.assert_allclose(trace["reach"], reach, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(trace["saliency"], saliency, rtol=1e-8, atol=1e-14)
    assert (np.triu(trace["reach"], 1) == 0).all()
    np.testing.assert_allclose(trace["reach.curve"][2], np.diagonal(reach, -2).mean(), rtol=1e-8)


@pytest.mark.parametrize("family", ["markov", "lstm", "transformer"])
def test_left_out_is_what_changes_without_a_token(family: str) -> None:
    model = rc.LanguageModel("markov", 256, order=2).eval() if family == "markov" else make(family)
    if family == "markov":
        model.body.count(ids_of("to be, or not to be, that is the question: to bee or not"))
    found = rc.inspect(model, TEXT, tokenizer=BYTES)["left_out"]
    ids = ids_of(TEXT)
    whole = model(ids)[0][0].log_softmax(-1).detach()
    for o, s in ((5, 5), (9, 2), (17, 0), (17, 17), (4, 9)):
        target = ids[0, o + 1]
        kept = [i for i in range(o + 1) if i != s]
        without = model(ids[:, kept])[0][0, -1].log_softmax(-1).detach()
        expected = float(whole[o, target] - without[target])
        assert found[o, s] == pytest.approx(expected if s <= o else 0.0, rel=1e-9, abs=1e-12)
    assert np.isnan(found[0, 0])  # nothing was read before it


def test_a_window_ends_the_reach() -> None:
    model = make("transformer", layers=1, window=4)
    reach = rc.inspect(model, TEXT, tokenizer=BYTES)["reach"]
    assert (np.tril(reach, -4) == 0).all()
    assert (np.diagonal(reach, -3) > 0).all()


@pytest.mark.parametrize("kind", ["rnn", "relu", "gru", "before", "lstm"])
def test_jacobians_are_those_of_autograd(kind: str) -> None:
    torch.manual_seed(0)
    layer = {
        "rnn": rc.RNN(3, 5),
        "relu": rc.RNN(3, 5, nonlinearity="relu"),
        "gru": rc.GRU(3, 5),
        "before": rc.GRU(3, 5, reset="before"),
        "lstm": rc.LSTM(3, 5),
    }[kind].double()
    x = torch.randn(1, 6, 3, dtype=torch.float64)
    with rc.record(layer) as seen:
        layer(x)
    found = step_jacobians(layer, {name: value[0] for name, value in seen.items()})
    assert found is not None
    _, memory = layer(x[:, :4])

    def state_after(*before: torch.Tensor) -> torch.Tensor:
        _, after = layer(x[:, 4:5], type(memory)(**dict(zip(memory.tensors(), before, strict=True))))
        return torch.cat(after.leaves(), dim=1)

    parts = torch.autograd.functional.jacobian(state_after, tuple(memory.leaves()))
    expected = torch.cat([part[0, :, 0] for part in parts], dim=1)
    torch.testing.assert_close(found[4], expected)
    product = found[5] @ found[4] @ found[3]
    np.testing.assert_allclose(product_norms(found)[3], torch.linalg.matrix_norm(product, 2), rtol=1e-3)


def test_the_spectrum_of_a_known_matrix() -> None:
    layer = rc.RNN(2, 2, bias=False, dtype=torch.float64)
    layer.weight_hh.data = torch.tensor([[0.0, -0.5], [0.5, 0.0]], dtype=torch.float64)  # a rotation, halved
    layer.weight_ih.data.zero_()
    trace = rc.inspect(layer, torch.zeros(9, 2))
    np.testing.assert_allclose(np.abs(trace["layers.0.spectrum"][0, :, 1]), [0.5, 0.5], rtol=1e-12)
    assert trace["layers.0.radius"][0] == pytest.approx(0.5)
    assert trace["layers.0.largest"][0] == pytest.approx(0.5)
    np.testing.assert_allclose(trace["layers.0.product_norms"], 0.5 ** np.arange(9), rtol=1e-9)  # at h = 0, exactly


def test_matrix_powers_show_what_the_radius_hides() -> None:
    """All five eigenvalues are 0.9, yet the powers grow a hundredfold before they vanish."""
    layer = rc.RNN(5, 5, bias=False, dtype=torch.float64)
    layer.weight_hh.data = 0.9 * torch.eye(5).double() + torch.diag(torch.ones(4), 1).double()
    trace = rc.inspect(layer, torch.zeros(3, 5))
    powers, exact = trace["layers.0.powers"][0], layer.weight_hh.detach()
    assert trace["layers.0.radius"][0] == pytest.approx(
        0.9, abs=1e-3
    )  # of a defective matrix, to the fifth root of 1e-16
    for k in (0, 1, 7, 39, 64):
        assert powers[k] == pytest.approx(float(torch.linalg.matrix_norm(exact.matrix_power(k), 2)), rel=1e-3)
    assert powers.argmax() == 39
    assert powers.max() > 100
    assert powers[64] < powers[39]


# ---- distances -----------------------------------------------------------------------------------


def test_tokens_are_one_operation_apart_in_attention_and_all_steps_in_a_recurrence() -> None:
    steps = np.arange(9)[:, None] - np.arange(9)
    for layers in (1, 2):
        for family, apart in (("transformer", np.zeros((9, 9))), ("lstm", steps)):
            trace = rc.inspect(make(family, layers=layers), TEXT[:9], tokenizer=BYTES)
            expected = np.where(steps >= 0, apart + layers, np.inf)
            np.testing.assert_array_equal(trace["token_distance"], expected)
    both = rc.inspect(rc.Bidirectional(rc.GRU(2, 2), rc.GRU(2, 2)), torch.zeros(9, 2))
    np.testing.assert_array_equal(both["token_distance"], np.abs(steps) + 1)
    assert "token_distance" not in rc.inspect(make("ttt-linear", layers=1), TEXT[:9], tokenizer=BYTES)


def test_a_window_must_be_crossed_in_several_layers() -> None:
    stack = rc.Stack(*(rc.SelfAttention(4, 2, window=3) for _ in range(2)))
    steps = np.arange(9)[:, None] - np.arange(9)
    trace = rc.inspect(stack, torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    np.testing.assert_array_equal(trace["token_distance"], np.where((steps >= 0) & (steps <= 4), 2.0, np.inf))
    mean = (trace["layers.0.weights"] * np.abs(steps)).sum(-1)
    np.testing.assert_allclose(trace["layers.0.mean_distance"], mean)
    assert mean.max() <= 2


# ---- memories ------------------------------------------------------------------------------------


def test_the_inner_model_of_ttt_moves_and_learns() -> None:
    layer = rc.TTTLinear(8, 2, mini_batch=4, rate=0.5, dtype=torch.float64)
    x = torch.randn(1, 8, generator=torch.Generator().manual_seed(0)).double().expand(12, 8)  # the same step, again
    trace = rc.inspect(layer, x)
    _, memory = layer(x[None])
    moved = (memory.weights[0] - layer.start[0]).square().sum((-1, -2)).sqrt()[0].detach()  # 12 steps: a border
    np.testing.assert_allclose(trace["layers.0.movement"][-1], moved, rtol=1e-9)
    loss = trace["layers.0.inner_loss"]
    assert (loss[4] < loss[0]).all()
    assert (loss[8] < loss[4]).all()
    assert (trace["layers.0.inner_rate"] == 0.5).all()


def test_bytes_of_memories_grow_as_they_say() -> None:
    grown = {family: rc.inspect(make(family), TEXT, tokenizer=BYTES)["memory.bytes"] for family in LEARNED}
    assert set(np.diff(grown["lstm"])) == {0}
    assert set(np.diff(grown["transformer"])) == {2 * 2 * 16 * 8}  # keys and values, two layers, float64
    assert set(np.diff(grown["ttt-linear"])) == {0}


def test_linear_attention_has_weights_that_give_its_contexts() -> None:
    torch.manual_seed(0)
    layer = rc.LinearAttention(8, 2, decay=True, dtype=torch.float64)
    x = torch.randn(6, 8, dtype=torch.float64)
    trace = rc.inspect(layer, x)
    values = layer.qkv(x).detach().unflatten(1, (3, 2, 4))[:, 2]  # (T, N, H)
    contexts = torch.einsum("nts,snh->tnh", torch.from_numpy(trace["layers.0.weights"]), values).flatten(1)
    torch.testing.assert_close(layer.out(contexts), layer(x[None])[0][0])


# ---- long texts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["lstm", "transformer", "ttt-linear"])
def test_of_a_long_text_the_end_is_shown_and_all_is_read(family: str) -> None:
    model, text = make(family), "a rose is a rose is a rose"
    whole = rc.inspect(model, text, tokenizer=BYTES)
    end = rc.inspect(model, text, tokenizer=BYTES, longest=8, explain=3)
    assert end.skipped == len(text) - 8
    assert "".join(end.tokens) == text[-8:]
    for name in ("next.probabilities", "loss", "memory.bytes", *(["layers.0.cell"] if family == "lstm" else [])):
        np.testing.assert_allclose(end[name], whole[name][-8:], rtol=1e-9)
    np.testing.assert_allclose(end["reach"], whole["reach"][-3:, -8:], rtol=1e-8)


# ---- what if -------------------------------------------------------------------------------------


def curve_of(model: rc.LanguageModel, **changes: object) -> np.ndarray:
    return rc.inspect(
        model, "the same sentence runs through the whole line of models, again", tokenizer=BYTES, **changes
    )["reach.curve"]


def test_the_forget_bias_moves_the_reach_of_an_untrained_lstm_by_ten_orders_of_magnitude() -> None:
    """Gradient at distance 48: with bias 0 half is forgotten at each step, 0.5^48 ≈ 3.6e-15; with 4 σ(4)^48 ≈ 0.42."""
    model = make("lstm", layers=1, width=64)
    far = {bias: curve_of(model, forget_bias=bias)[48] for bias in (0.0, 1.0, 2.0, 4.0)}
    orders = np.log10(far[4.0] / far[0.0])
    assert 8 < orders < 13
    assert sorted(far.values()) == list(far.values())


def test_changes_leave_the_model_as_it_was() -> None:
    model = make("lstm")
    before = copy.deepcopy(model.state_dict())
    changed = rc.inspect(model, TEXT, tokenizer=BYTES, forget_bias=3.0, knock_out=("layers.1", "output_gate"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (changed["layers.1.output_gate"] == 1).all()
    assert changed.model["changes"] == {"forget_bias": 3.0, "knock_out": (("layers.1", "output_gate"),)}
    again = rc.inspect(model, TEXT, tokenizer=BYTES)
    assert (again["layers.1.output_gate"] < 1).all()


def test_a_knocked_out_head_contributes_nothing() -> None:
    model = make("transformer", layers=1, heads=2)
    expected = copy.deepcopy(model)
    expected.body[1].mixer.out.weight.data[:, 8:] = 0
    for options in ({"knock_out": [("layers.0", 1)]}, {"knock_out": ("layers.0", 1)}):
        trace = rc.inspect(model, TEXT, tokenizer=BYTES, **options)
        p = expected(ids_of(TEXT))[0][0].softmax(-1).amax(1).detach()
        np.testing.assert_allclose(trace["next.probabilities"][:, 0], p, rtol=1e-9)


def test_a_knocked_out_update_gate_keeps_nothing() -> None:
    model = make("gru", layers=1)
    trace = rc.inspect(model, TEXT, tokenizer=BYTES, knock_out=("layers.0", "update_gate"))
    np.testing.assert_array_equal(trace["layers.0.hidden"], trace["layers.0.candidate"])


def test_scale_window_and_inner_rate_are_changed() -> None:
    model = make("transformer", layers=1)
    plain, sharp = (rc.inspect(model, TEXT, tokenizer=BYTES, scaled=scaled) for scaled in (True, False))
    np.testing.assert_allclose(
        np.where(np.isfinite(sharp["layers.0.scores"]), sharp["layers.0.scores"], 0),
        2 * np.where(np.isfinite(plain["layers.0.scores"]), plain["layers.0.scores"], 0),  # √4, heads of 4
        rtol=1e-9,
    )
    near = rc.inspect(model, TEXT, tokenizer=BYTES, window=3)
    assert (np.tril(near["layers.0.weights"][0], -3) == 0).all()
    assert near["memory.bytes"][-1] == near["memory.bytes"][3]
    still = rc.inspect(make("ttt-linear"), TEXT, tokenizer=BYTES, inner_rate=0.0)
    assert (still["layers.0.movement"] == 0).all()


def test_temperature_warms_what_comes_next_and_nothing_else() -> None:
    model = make("gru")
    cold, warm = (rc.inspect(model, TEXT, tokenizer=BYTES, temperature=t) for t in (0.5, 2.0))
    assert (cold["next.entropy"] < warm["next.entropy"]).all()
    np.testing.assert_array_equal(cold["loss"], warm["loss"])
    np.testing.assert_array_equal(cold["reach"], warm["reach"])


# ---- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["我们都是", "שלום עולם", "🙂👍🏽", "<script>alert(1)</script>", "a\n\tb"])
def test_any_text_keeps_its_characters(text: str) -> None:
    trace = rc.inspect(make("gru", layers=1), text, tokenizer=BYTES, explain=2)
    assert "".join(trace.tokens).replace("⋯", "") == text
    assert len(trace.tokens) == len(text.encode())


def test_unknown_characters_are_shown_as_typed() -> None:
    letters = rc.Tokenizer.train("char", ["abc"])
    model = rc.LanguageModel("gru", letters.vocab_size, width=8)
    trace = rc.inspect(model, "ab☂c", tokenizer=letters)
    assert trace.tokens == ("a", "b", "☂", "c")
    assert trace.model["unknown"] == [2]
    with pytest.raises(ValueError, match=r"none of its symbols is known to this model, such as '☂'"):
        rc.inspect(model, "☂☂", tokenizer=letters)


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_is_refused_with_what_to_do() -> None:
    model = make("lstm", layers=1)
    with pytest.raises(ValueError, match="text: empty; give a text to read"):
        rc.inspect(model, "", tokenizer=BYTES)
    with pytest.raises(ValueError, match="tokenizer: got none for a text"):
        rc.inspect(model, TEXT)
    with pytest.raises(ValueError, match="temperature: got 0, expected a number above 0"):
        rc.inspect(model, TEXT, tokenizer=BYTES, temperature=0)
    with pytest.raises(ValueError, match=r"knock_out: got the layer 'layers.7', expected one of layers.0; did you"):
        rc.inspect(model, TEXT, tokenizer=BYTES, knock_out=("layers.7", "forget_gate"))
    with pytest.raises(
        ValueError, match=r"knock_out: got 'gate' of layers.0, expected input_gate, forget_gate, output_"
    ):
        rc.inspect(model, TEXT, tokenizer=BYTES, knock_out=("layers.0", "gate"))
    with pytest.raises(ValueError, match="window: this model has no layer that it concerns, expected one with a Att"):
        rc.inspect(model, TEXT, tokenizer=BYTES, window=4)
    with pytest.raises(ValueError, match=r"knock_out: got head 9 of layers.0, expected 0 to 3"):
        rc.inspect(make("transformer"), TEXT, tokenizer=BYTES, knock_out=("layers.0", 9))
    with pytest.raises(TypeError, match="model: got a Linear, expected a run, a model of recollect, or its layers"):
        rc.inspect(nn.Linear(2, 2), TEXT)
    with pytest.raises(ValueError, match=r"inputs: got shape \(3, 5\), expected \(T, 4\)"):
        rc.inspect(rc.GRU(4, 4), torch.zeros(3, 5))
    with pytest.raises(ValueError, match="text: got 40 tokens, expected at most 16, the model's table of positions"):
        rc.inspect(make("transformer", max_length=16), "a" * 40, tokenizer=BYTES)


def test_a_run_that_vanished_is_named(tmp_path) -> None:
    folder = tmp_path / "run"
    run = rc.train("recall:count=200", model="gru", budget="1steps", out=folder)
    assert rc.inspect(folder, "c3 a7 ?c=").model["name"] == "run"
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for source in (folder, rc.Run(folder), rc.Run(str(run.folder))):
        with pytest.raises(Exception, match=r"not a run, config.json is missing; train one with: recollect train"):
            rc.inspect(source, "c3")


def test_a_model_that_counts_has_no_gradients_and_says_so() -> None:
    trace = rc.inspect(rc.LanguageModel("markov", 256, order=2), TEXT, tokenizer=BYTES)
    assert "reach" not in trace
    with pytest.raises(KeyError, match="the model counts: its probabilities have no gradient"):
        trace["reach"]
    assert trace.as_json()["missing"]["reach"]["zh"].startswith("这个模型靠计数")


def test_a_model_too_large_to_explain_is_refused_with_a_smaller_command() -> None:
    with torch.device("meta"):
        model = rc.LanguageModel("transformer", 50_000, width=1600, layers=48, heads=25)
    from recollect.inspection.inspector import check_cost
    from recollect.inspection.subject import Subject

    subject = Subject()
    subject.model, subject.tokens, subject.outcomes = model, ["a"] * 64, ["b"] * 64
    subject.inputs = torch.zeros(64)
    with pytest.raises(ValueError, match=r"explain: 1\d{3} million parameters over 64 tokens .* explain=\d+, or none"):
        check_cost(subject, 64)
    subject.outcomes = []
    check_cost(subject, 0)


def test_brief_omits_what_takes_longest_and_nothing_else() -> None:
    model = make("gru", layers=1)
    whole, brief = (rc.inspect(model, TEXT, tokenizer=BYTES, brief=is_brief) for is_brief in (False, True))
    omitted = {
        "left_out",
        *(f"layers.0.{name}" for name in ("spectrum", "radius", "largest", "powers", "product_norms")),
    }
    assert set(whole) - set(brief) == omitted
    for name in set(brief) - {"next.texts"}:
        np.testing.assert_array_equal(whole[name], brief[name])
    assert "left_out" in rc.inspect(rc.Markov(256, order=1), [1, 2], brief=True)
