"""A diagram shows the model that was traced: its equations, its parts and its numbers, or it is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_model import open_model

import recollect as rc
from recollect.inspection.diagram import expected
from recollect.layers.attention.alignment import ALIGNMENTS
from recollect.layers.attention.score import SCORES
from recollect.serving.shown_model import SERIES, series_of
from recollect.views.palette import COLOURS, FAMILIES, colours_for
from recollect.views.picture import Picture
from recollect.views.plots import apart

TEXT = "to be or not"
STATIC = Path(__file__).resolve().parents[2] / "src/recollect/serving/static"


def language(family: str, *, what_if: Any = None, **options: Any) -> rc.Trace:
    """Return the trace of a small untrained language model."""
    torch.manual_seed(0)
    model = rc.LanguageModel(family, vocab_size=256, **{"width": 16, "layers": 1, **options})
    return rc.inspect(model, TEXT, tokenizer=rc.Tokenizer("byte"), **(what_if or {}))


def translator(family: str, **settings: Any) -> rc.Trace:
    """Return the trace of a small untrained translator."""
    opened, _ = open_model("translate", family, **settings)
    return rc.inspect(opened, ("twenty-one", "21"))


def words_of(picture: Picture) -> list[str]:
    """Return the words of a picture as they are drawn, formulas with their marks."""
    return [str(mark["words"]) for mark in picture.scene.marks if mark["kind"] == "words"]


def arrows_of(picture: Picture, colour: str) -> list[tuple[tuple[float, float], ...]]:
    """Return the points of the arrows of one colour."""
    return [mark["points"] for mark in picture.scene.marks if mark.get("arrow") and mark["colour"] == colour]


def place_of(picture: Picture, words: str) -> tuple[float, float]:
    """Return where some words stand first."""
    return next((mark["x"], mark["y"]) for mark in picture.scene.marks if mark.get("words") == words)


# ---- cells -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset", "product"), [("before", "W_{hh} (r_t ⊙ h_{t−1})"), ("after", "r_t ⊙ (W_{hh} h_{t−1})")]
)
def test_a_gru_cell_is_drawn_with_its_own_reset(reset: str, product: str) -> None:
    trace = rc.inspect(rc.GRU(4, 8, reset=reset), torch.randn(5, 4))
    picture = rc.picture("gru-cell", trace)
    assert f"h̃_t = tanh(W_{{xh}} x_t + {product} + b)" in words_of(picture)
    box, times = (
        place_of(picture, "W_{hh}"),
        max(m["x"] for m in picture.scene.marks if m.get("words") == "×" and m["y"] == 214),
    )
    assert (box[0] < times) == (reset == "after")


def test_both_gates_of_a_gru_read_the_token_and_the_state() -> None:
    picture = rc.picture("gru-cell", language("gru"))
    for gate in ("z_t", "r_t"):
        x = place_of(picture, gate)[0] + 32  # the box is right of its name
        for colour in ("blue", "accent"):
            ends = [points[-1] for points in arrows_of(picture, colour)]
            assert any(abs(end[0] - x) < 27 and 291 <= end[1] <= 320 for end in ends), (gate, colour)


def test_the_cell_of_a_backward_layer_reads_what_comes_behind() -> None:
    opened, text = open_model("classify", "bigru")
    trace = rc.inspect(opened, text)
    backward = next(one["name"] for one in trace.layers if one["direction"] == "backward")
    picture = rc.picture("gru-cell", trace, layer=backward, token=0)
    assert "h_{t+1}" in words_of(picture)
    hints = [mark["hint"] for mark in picture.scene.marks if mark["kind"] == "cell"][:8]
    assert hints == [f"{value:.3g}" for value in trace[f"{backward}.hidden"][1, :8]]
    unrolled = rc.picture("unrolled", trace, layer=backward)
    assert all(end[0] < begin[0] for begin, end in arrows_of(unrolled, "accent"))


# ---- over time -------------------------------------------------------------------------------------


def test_a_language_model_over_time_shows_inputs_guesses_and_targets() -> None:
    trace = language("rnn")
    words = words_of(rc.picture("unrolled", trace))
    at = words.index("“o”")
    assert [one for one in words if re.fullmatch("“.”", one)] == [f"“{one}”" for one in "o␣be␣o"]
    assert words[at - 1] == expected(trace, 0)  # the guess, quoted: no second name of a state
    assert {"input", "guess", "target"} <= set(words)
    assert "target" not in words_of(rc.picture("unrolled", rc.inspect(rc.RNN(4, 8), torch.randn(5, 4))))


def test_the_state_that_read_a_token_has_its_number_in_every_diagram() -> None:
    trace = language("gru")
    for name in ("unrolled", "back-propagation", "latent-autoregression"):
        picture = rc.picture(name, trace)
        assert "x₀" not in words_of(picture)
        for number in "₁₂₃₄₅":
            assert place_of(picture, f"h{number}")[0] == place_of(picture, f"x{number}")[0]


def test_the_gradient_runs_to_the_first_step_or_to_a_cut() -> None:
    trace = language("lstm")
    whole = rc.picture("back-propagation", trace)
    assert "every" not in whole.title
    assert whole.title == rc.picture("back-propagation", trace, truncation=99).title
    assert "cut" not in words_of(whole)
    back = [one for one in arrows_of(whole, "orange") if one[0][1] == one[-1][1]]
    assert len(back) == 6  # five between six states, and one from the seventh
    row = trace["reach"][trace["outcome.at"].tolist().index(5)]
    assert all(f"{value:.2g}" in words_of(whole) for value in row[:6])
    cut = rc.picture("back-propagation", trace, truncation=4)
    assert words_of(cut).count("cut") == 1
    assert words_of(cut).count("0") == 4
    assert rc.picture("back-propagation", trace, truncation=2, lang="zh").svg().count(">截断</text>") == 3
    with pytest.raises(ValueError, match="truncation: got 0, expected at least 1 step"):
        rc.picture("back-propagation", trace, truncation=0)


def test_nothing_dangles_behind_the_last_token() -> None:
    model = rc.LanguageModel("rnn", vocab_size=256, width=16, layers=1)
    trace = rc.inspect(model, "abc", tokenizer=rc.Tokenizer("byte"))
    for name in ("unrolled", "back-propagation"):
        picture = rc.picture(name, trace)
        last = place_of(picture, "h₃")[0]
        links = [*arrows_of(picture, "accent"), *arrows_of(picture, "orange")]
        assert max(x for points in links for x, _ in points) < last + 42


def test_random_truncation_is_drawn_at_random() -> None:
    trace = language("gru")

    def first_row(seed: int) -> list[float]:
        picture = rc.picture("truncation", trace, seed=seed)
        return [mark["w"] for mark in picture.scene.marks if mark["kind"] == "box" and mark["y"] == 120]

    assert len({tuple(first_row(seed)) for seed in range(5)}) > 2
    assert first_row(1) == first_row(1)


# ---- sources ---------------------------------------------------------------------------------------


def test_a_diagram_of_another_way_to_read_a_source_is_refused() -> None:
    fitting = {"sutskever": "encoder-decoder", "cho": "context-at-each-step", "static": "context-at-each-step"}
    for family in ("sutskever", "cho", "static", "bahdanau", "luong", "transformer"):
        trace = translator(family)
        tried = "transformer" if family == "transformer" else fitting.get(family, "soft-alignment")
        rc.picture(tried, trace)
        for name in ("encoder-decoder", "context-at-each-step"):
            if fitting.get(family) != name:
                with pytest.raises(ValueError, match=f"{name}: got {family}, whose decoder reads .*; try {tried}"):
                    rc.picture(name, trace)


def test_a_soft_alignment_shows_what_its_context_enters() -> None:
    bahdanau = words_of(rc.picture("soft-alignment", translator("bahdanau")))
    assert {"s1", "c_t = Σ_s a_{ts} h_s,   a_t = softmax(e_t)"} <= set(bahdanau)
    local = words_of(rc.picture("soft-alignment", translator("luong", alignment="local-monotonic"), outcome=1))
    assert {"h̃2", "c_t = Σ_s a_{ts} h_s,   a_t = align(e_t)"} <= set(local)
    blocks = words_of(rc.picture("soft-alignment", translator("transformer"), lang="zh"))
    assert "y1" in blocks
    assert blocks[1].endswith("a_t = softmax(e_t)（各头与各层的平均）")


def test_a_source_that_is_read_from_its_end_is_drawn_so() -> None:
    words = words_of(rc.picture("encoder-decoder", translator("sutskever", reversed_source=True)))
    assert "source, read from its end" in words
    letters = [one for one in words if len(one) == 1 and one in "twenyo-"]
    assert letters[:3] == list("eno")


# ---- attention -------------------------------------------------------------------------------------


def test_the_equation_of_attention_is_that_of_the_layer() -> None:
    formula = {
        "e_{ts} = R_t q_t · R_s k_s / √H,": language("transformer"),
        "e_{ts} = R_t q_t · R_s k_s,": language("transformer", what_if={"scaled": False}),
        "e_{ts} = q_t · k_s / √H,": language("transformer", max_length=32),
        "a_{ts} ∝ γᵗ⁻ˢ φ(q_t) · φ(k_s),": language("linear-attention"),
        "e_{ts} = score(q_t, k_s),": translator("bahdanau"),
        "e_{ts} = q_t · k_s / √H − m |t − s|,": rc.inspect(
            rc.SelfAttention(8, 2, positions="alibi"), torch.randn(5, 8)
        ),
    }
    for begin, trace in formula.items():
        assert any(words.startswith(begin) for words in words_of(rc.picture("queries-keys-values", trace))), begin


def test_self_attention_without_parameters_has_no_keys_and_no_scale() -> None:
    x = torch.randn(5, 8)
    trace = rc.inspect(rc.BasicSelfAttention(8), x)
    words = words_of(rc.picture("self-attention", trace))
    assert words[1] == "w'_{ts} = x_t · x_s,   w_t = softmax(w'_t),   y_t = Σ_s w_{ts} x_s"
    assert not {"k", "v", "q_t"} & set(words)
    weights = (x[-1] @ x.T).softmax(0)
    assert all(f"{float(one):.2f}" in words for one in weights)
    np.testing.assert_allclose(trace["values"], x)
    assert trace["reach"].shape == (5, 5)  # a layer without weights has gradients, too
    scaled = rc.inspect(rc.BasicSelfAttention(8, scaled=True), x)
    assert "x_t · x_s / √D," in words_of(rc.picture("self-attention", scaled))[1]
    with pytest.raises(ValueError, match="which has no queries, keys or values; try self-attention"):
        rc.picture("queries-keys-values", trace)
    with pytest.raises(ValueError, match=r"got SelfAttention, expected BasicSelfAttention.*try queries-keys-values"):
        rc.picture("self-attention", language("transformer"))


def marked(trace: rc.Trace, lang: str = "en") -> set[str]:
    """Return the filled members of the family."""
    marks = rc.picture("attention-family", trace, lang=lang).scene.marks
    return {str(mark["words"]) for mark in marks if mark["kind"] == "words" and mark["colour"] == "paper"}


def test_the_members_of_the_family_that_a_model_has_are_marked() -> None:
    assert marked(translator("bahdanau")) == {"one source", "additive", "soft", "one head"}
    assert marked(translator("luong", alignment="local-predictive")) == {
        "one source",
        "general",
        "local-predictive",
        "one head",
    }
    assert marked(language("transformer")) == {"one source", "scaled", "soft", "multi-head"}
    assert marked(language("transformer", what_if={"scaled": False}), "zh") == {"单一来源", "点积", "软对齐", "多头"}
    opened, text = open_model("classify", "lstm", pooling="attention")
    assert marked(rc.inspect(opened, text)) == {"one source", "soft", "self-attentive"}
    with pytest.raises(ValueError, match="attention-family: got gru, which has no attention"):
        marked(language("gru"))
    alone = words_of(rc.picture("attention-family", lang="zh"))
    assert not (set(SCORES) | set(ALIGNMENTS)) & set(alone)


# ---- the Transformer -------------------------------------------------------------------------------


def test_a_transformer_is_drawn_with_its_positions_norms_and_output() -> None:
    rotary = words_of(
        rc.picture("transformer", language("transformer", norm_kind="rms", activation="swiglu", window=4))
    )
    assert {"embedding", "rotary positions in q and k", "window of 4", "feed-forward, swiglu", "decoder"} <= set(rotary)
    assert rotary.count("RMS norm") == 3  # two in the block, and the last
    assert "linear map to 256 numbers" in rotary
    assert not any("positions" in one and "rotary" not in one for one in rotary)
    learned = words_of(rc.picture("transformer", language("transformer", max_length=32, layers=3)))
    assert {"learned", "× 3"} <= set(learned)
    assert "rotary positions in q and k" not in learned
    published = words_of(rc.picture("transformer", translator("transformer", norm="post")))
    assert published.count("layer norm") == 5
    assert published.count("embedding × √D") == published.count("sinusoidal") == 2
    assert words_of(rc.picture("transformer", translator("transformer", norm="pre"))).count("layer norm") == 7
    with pytest.raises(ValueError, match="transformer: got ttt-linear, which has no blocks with self-attention"):
        rc.picture("transformer", language("ttt-linear"))


def test_the_norm_of_a_block_stands_where_it_is_applied() -> None:
    def lowest(norm: str) -> float:
        picture = rc.picture("transformer", translator("transformer", norm=norm))
        return max(mark["y"] for mark in picture.scene.marks if mark.get("words") == "layer norm")

    def attention(norm: str) -> float:
        return place_of(rc.picture("transformer", translator("transformer", norm=norm)), "self-attention, 4 heads")[1]

    assert lowest("pre") > attention("pre")
    assert lowest("post") < attention("post")


def test_a_masked_model_is_drawn_with_segments_and_shared_blocks() -> None:
    model = rc.MaskedModel(vocab_size=256, width=16, layers=2, heads=2, shared=True, embedding=8, max_length=64)
    words = words_of(rc.picture("transformer", rc.inspect(model, TEXT, tokenizer=rc.Tokenizer("byte"))))
    assert {"embedding + segment", "linear map to the blocks' width", "× 2, shared", "encoder"} <= set(words)
    assert "linear map, φ, norm" in words


# ---- colours and labels ----------------------------------------------------------------------------


def test_a_family_has_the_colour_of_the_page() -> None:
    light = (STATIC / "page.css").read_text(encoding="utf-8").partition('[data-theme="dark"]')[0]
    page = dict(re.findall(r"--series-(\d): (#[0-9a-f]{6})", light))
    assert set(FAMILIES) == set(SERIES)
    for family, colour in FAMILIES.items():
        assert COLOURS[colour] == page[str(series_of(family, 0))], family
    chart = rc.picture("memory", [language("lstm"), language("rnn")]).plotly()["data"]
    assert [one["line"]["color"] for one in chart] == [COLOURS["gold"], COLOURS["orange"]]


def test_models_of_one_family_have_different_colours() -> None:
    assert colours_for(["lstm", "rnn"]) == ["gold", "orange"]
    for families in (["lstm"] * 9, ["own:a", "own:b", "lstm", "rnn", "lstm"]):
        assert len(set(colours_for(families))) == len(families)


def test_labels_of_curves_stay_above_the_axis() -> None:
    assert apart([10.0, 100.0, 100.0, 100.0], 100.0) == [10.0, 66.0, 83.0, 100.0]
    assert apart([10.0, 12.0], 100.0) == [10.0, 27.0]
    three = [language(family) for family in ("rnn", "gru", "lstm")]
    picture = rc.picture("memory", three)
    ticks = [mark["y"] for mark in picture.scene.marks if mark.get("words") == "5"]
    assert all(place_of(picture, name)[1] < ticks[0] - 12 for name in ("rnn", "gru", "lstm"))
    curves = [mark for mark in picture.scene.marks if mark["kind"] == "line" and mark["width"] == 2.2]
    assert [one["dashed"] for one in curves] == [False, True, False]  # a GRU's memory is as large as an RNN's
    assert not any("." in one for one in words_of(picture))  # tokens are counted


def test_the_words_of_a_spectrum_are_beside_its_dots() -> None:
    picture = rc.picture("spectrum", language("lstm"))
    dots = [mark["x"] for mark in picture.scene.marks if mark["kind"] == "circle" and mark["r"] == 3.4]
    assert place_of(picture, "inside the circle: fades")[0] > max(dots)
