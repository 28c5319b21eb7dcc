"""The numbers of the page: those of the library, and those of torch's own modules computed apart."""

from __future__ import annotations

import base64
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import recollect as rc
from recollect.data.text.tokenizer import Tokenizer
from recollect.inspection.inspector import seconds_of
from recollect.layers.attention.self_attention import SelfAttention
from recollect.layers.recurrent.lstm import LSTM
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.serving import reading
from recollect.serving.exhibit import column, grid, variant
from recollect.serving.knobs import changes_of, knobs_of
from recollect.serving.laboratory import BIASES, DISTANCE, untrained_reach
from recollect.serving.packing import KINDS, pack, pack_ids
from recollect.serving.problems import both
from recollect.serving.reading import TEMPERATURES
from recollect.serving.shown_model import ShownModel, open_some
from recollect.serving.spans import spans_of
from recollect.serving.trainings import Trainings
from recollect.serving.writing import AT, TOKENS, stream_of, written
from serving.conftest import FAMILIES, TEXT
from tiers import slow_after


def unpacked(packed) -> np.ndarray:
    """Return what the page makes of a packed array."""
    values = np.frombuffer(base64.b64decode(packed["data"]), dtype=KINDS[packed["dtype"]])
    return values.reshape(packed["shape"])


@pytest.fixture(scope="module")
def models(runs) -> dict[str, ShownModel]:
    return {one.name: one for one in open_some([runs], "cpu")[0]}


@pytest.fixture(scope="module")
def readings(models):
    return {name: column(one, TEXT)["reading"] for name, one in models.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_array_is_that_of_the_trace(models, readings, runs, family):
    trace = rc.inspect(rc.load(runs / family, device="cpu"), TEXT)
    arrays = readings[family]["arrays"]
    shared = [name for name in arrays if name in trace and name != "next.ids"]  # equal ones may stand in any order
    assert {"loss", "memory.bytes", "outcome.at"} <= set(shared)
    for name in shared:
        own = np.nan_to_num(unpacked(arrays[name]))
        np.testing.assert_allclose(own, np.nan_to_num(trace[name]), rtol=1e-6, atol=1e-30)
    assert ("reach" in shared) == (family != "markov")
    assert ("left_out" in shared) == (family == "markov")
    for name in (name.removesuffix(".mean") for name in arrays if name.endswith(".mean")):
        np.testing.assert_allclose(unpacked(arrays[f"{name}.mean"]), trace[name].mean(1), rtol=1e-6)


@pytest.mark.parametrize("temperature", slow_after(2, TEMPERATURES))
def test_probabilities_at_every_temperature_are_those_of_the_library(readings, runs, temperature):
    run = rc.load(runs / "lstm", device="cpu")
    trace = rc.inspect(run, TEXT, temperature=temperature)
    arrays = readings["lstm"]["arrays"]
    log_p, norms = unpacked(arrays["next.log_p"]), unpacked(arrays["next.log_norm"])
    shares = np.exp(log_p / temperature - norms[:, [TEMPERATURES.index(temperature)]])  # as reading.js computes them
    kept = trace["next.probabilities"].shape[1]
    np.testing.assert_allclose(shares[:, :kept], trace["next.probabilities"], rtol=2e-5, atol=1e-12)


def test_states_and_gates_are_those_of_torch_lstm(models, readings):
    model = models["lstm"].model
    layer = next(one for one in model.modules() if isinstance(one, LSTM))
    ids = torch.from_numpy(models["lstm"].tokenizer.encode(TEXT))[None]
    x = model.body[0](ids)[0].detach()
    theirs = torch.nn.LSTM(layer.width, layer.hidden, batch_first=True)
    names = {"weight_ih_l0": layer.weight_ih, "weight_hh_l0": layer.weight_hh}
    theirs.load_state_dict(names | {"bias_ih_l0": layer.bias_ih, "bias_hh_l0": layer.bias_hh})
    h = c = torch.zeros(1, 1, layer.hidden)
    cells, keeps = [], []
    for t in range(x.shape[1]):
        total = x[:, t] @ layer.weight_ih.T + layer.bias_ih + h[0] @ layer.weight_hh.T + layer.bias_hh
        keeps.append(total.chunk(4, dim=1)[1].sigmoid().mean().item())
        _, (h, c) = theirs(x[:, t : t + 1], (h, c))
        cells.append(c[0, 0].detach().numpy())
    strip = unpacked(readings["lstm"]["arrays"]["page.strip"])
    assert readings["lstm"]["strip"] == "cell"
    np.testing.assert_allclose(strip, np.stack(cells), atol=1e-6)
    np.testing.assert_allclose(unpacked(readings["lstm"]["arrays"]["layers.0.forget_gate.mean"]), keeps, atol=1e-6)


def test_attention_weights_are_those_of_torch_multihead_attention():
    torch.manual_seed(0)
    layer = SelfAttention(16, 4)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    own = {"in_proj_weight": layer.qkv.weight, "in_proj_bias": layer.qkv.bias}
    theirs.load_state_dict(own | {"out_proj.weight": layer.out.weight, "out_proj.bias": layer.out.bias})
    x = torch.randn(1, 9, 16)
    mask = torch.ones(9, 9, dtype=torch.bool).triu(1)
    _, weights = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
    trace = rc.inspect(layer, x[0], brief=True)
    np.testing.assert_allclose(unpacked(pack(trace["layers.0.weights"])), weights[0].detach(), atol=1e-6)


# ---- knobs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "knobs"),
    slow_after(
        3,
        [
            ("markov", []),
            ("rnn", []),
            ("lstm", ["forget", "knock"]),
            ("transformer", ["scale", "window", "knock"]),
            ("ttt-linear", ["rate", "knock"]),
        ],
    ),
)
def test_every_model_has_its_knobs_and_each_value_changes_what_it_predicts(models, readings, family, knobs):
    one = models[family]
    assert [knob.id for knob in knobs_of(one.model, one.layers)] == knobs
    base = readings[family]["arrays"]["next.log_p"]
    found = grid(one, TEXT)
    assert {name.partition("=")[0] for name in found} == set(knobs)
    same = [name for name, reading in found.items() if reading["arrays"]["next.log_p"] == base]
    assert not same


def test_a_turned_knob_is_what_the_library_computes(models, runs):
    run = rc.load(runs / "transformer", device="cpu")
    for asked, changes in (
        ({"scale": "0"}, {"scaled": False}),
        ({"window": "2", "knock": "layers.0:1"}, {"window": 2, "knock_out": ("layers.0", 1)}),
    ):
        turned = variant(models["transformer"], TEXT, asked)
        trace = rc.inspect(run, TEXT, **changes)
        for name in ("reach", "layers.0.weights", "memory.bytes"):
            np.testing.assert_allclose(unpacked(turned["arrays"][name]), trace[name], rtol=1e-6, atol=1e-30)


def test_what_a_model_does_not_have_is_refused(models):
    one = models["lstm"]
    known = knobs_of(one.model, one.layers)
    with pytest.raises(ValueError, match="scale: no knob of this model, expected one of forget, knock"):
        changes_of(one.model, known, {"scale": "0"})
    with pytest.raises(ValueError, match="forget: got '99', expected one of -2, -1"):
        changes_of(one.model, known, {"forget": "99"})


def test_the_forget_gate_moves_an_untrained_gradient_by_ten_orders_of_magnitude():
    low, high = (untrained_reach("lstm", bias)[DISTANCE] for bias in (BIASES[0], BIASES[-1]))
    assert 9 < math.log10(high / low) < 12
    curves = {family: untrained_reach(family) for family in ("rnn", "gru", "transformer", "ttt-linear")}
    assert curves["rnn"][DISTANCE] < curves["gru"][DISTANCE] < 1e-6
    assert min(curves["transformer"][DISTANCE], curves["ttt-linear"][DISTANCE]) > 1e-3


# ---- large models and continuations --------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 3])
def test_of_a_large_model_fewer_predictions_are_explained(models, readings, monkeypatch, most):
    size = sum(p.numel() for p in models["rnn"].model.parameters())
    monkeypatch.setattr(reading, "PATIENCE", (most + 0.5) * seconds_of(size, len(TEXT)))
    arrays = column(models["rnn"], TEXT)["reading"]["arrays"]
    whole = readings["rnn"]["arrays"]
    assert ("reach" in arrays) == (most > 0)
    if most:
        np.testing.assert_allclose(unpacked(arrays["reach"]), unpacked(whole["reach"])[-most:], rtol=1e-5, atol=1e-30)
    assert arrays["next.log_p"] == whole["next.log_p"]


@pytest.mark.parametrize("temperature", ["0.5", "1"])
def test_a_text_that_is_handed_over_goes_on_from_what_is_shown(models, temperature):
    first, second = models["rnn"], models["lstm"]
    kept = written([first, second], "the cat")
    begun = "the cat" + "".join(kept["texts"]["rnn"][temperature][: kept["at"]])
    added = "".join(kept["swaps"][temperature]["rnn>lstm"])
    assert added
    assert added == "".join(stream_of(second, begun, float(temperature), tokens=TOKENS - AT))


# ---- symbols and arrays --------------------------------------------------------------------------------

PIECES = st.text(alphabet=st.sampled_from("ab é😀你好 \n\tשל<&"), max_size=40)


@given(PIECES, st.sampled_from(["char", "byte", "word", "space", "bpe"]))
def test_spans_cover_a_text_in_order_whatever_the_tokenizer(text, kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text).tolist()
    spans = spans_of(tokenizer, text, ids)
    assert len(spans.texts) == len(spans.starts) == len(spans.ends) == len(spans.known) == len(ids)
    last = 0
    for start, end in zip(spans.starts, spans.ends, strict=True):
        assert last <= start <= end <= len(text)
        last = end
    covered = "".join(text[start:end] for start, end in zip(spans.starts, spans.ends, strict=True))
    assert "".join(covered.split()) == "".join(text.split())
    if kind in ("char", "byte", "word", "bpe"):
        assert covered == text


TOKENIZERS = {
    kind: Tokenizer.train(kind, ["ab ab é 😀 ba\n" * 5], 300 if kind == "bpe" else None)
    for kind in ("char", "byte", "word", "space", "bpe")
}


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=20))
def test_packed_numbers_are_exact(values):
    assert unpacked(pack(values)).tolist() == np.float32(values).tolist()


def test_ids_take_the_smallest_type_that_holds_them():
    for most, dtype in ((255, "u1"), (256, "u2"), (70_000, "u4")):
        packed = pack_ids([[0, most]])
        assert packed["dtype"] == dtype
        assert unpacked(packed).tolist() == [[0, most]]
    assert unpacked(pack_ids(np.zeros((0, 3), int))).shape == (0, 3)


# ---- what is wrong -------------------------------------------------------------------------------------


def test_errors_of_a_text_are_said_in_chinese(models):
    """Each is raised by the library itself: a message that changes there must be translated anew."""
    unknown = column(models["lstm"], "ЖЖЖ")["problem"]
    assert unknown["en"].startswith("lstm: text: none of its symbols is known to this model")
    assert unknown["zh"] == "lstm：没有一个符号是这个模型认识的，例如 'Ж'"
    model = LanguageModel(LanguageConfig("transformer", 300, width=16, layers=1, max_length=4))
    short = ShownModel("a", "a", Path("a"), "transformer", model, models["lstm"].tokenizer, None)
    assert column(short, "the cat")["problem"]["zh"] == "a：文字有 7 个词元，而模型的位置表最多 4 个；请缩短文字"


def test_errors_of_files_are_said_in_chinese(runs, tmp_path):
    shutil.copytree(runs / "rnn", tmp_path / "rnn")
    with (tmp_path / "rnn" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("[]\n")
    problem = Trainings(open_some([tmp_path / "rnn"], "cpu")[0]).read()["rnn"]["problem"]
    assert problem["en"].endswith("damaged, it is no row of this run; delete that line")
    assert "行已损坏，不是这次运行的记录；请删除该行" in problem["zh"]
    assert both(ValueError("nobody translated this"))["zh"] == "出错：nobody translated this"
