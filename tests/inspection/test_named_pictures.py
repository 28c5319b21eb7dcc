"""Every picture of the story is drawn from a trained model, in both languages, as SVG and as a figure of plotly."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import recollect as rc
from recollect.inspection.pictures import PICTURES
from recollect.views.picture import BROWSERS, Picture
from recollect.views.scene import Scene

TEXT = "c3 a7 f1 ?a="
LANGUAGE = ("rnn", "gru", "lstm", "transformer", "ttt-linear")
SMALL = {"width": 16, "layers": 1}
ROOT = Path(__file__).resolve().parents[2]
Find = Callable[[str], Any]


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Find:
    """Return a function from a name to the trace of a trained model, each trained once."""
    folder = tmp_path_factory.mktemp("runs")
    known: dict[str, Any] = {}

    def made(name: str) -> Any:
        family = name.partition(":")[2] or name
        options: dict[str, Any] = {"budget": "3steps", "out": folder / name.replace(":", "-"), **SMALL}
        if name in LANGUAGE:
            return rc.inspect(rc.train("recall:count=300", model=name, **options), TEXT)
        if name == "no parameters":  # of the trained vectors of the text's symbols
            trained, run = of("transformer"), rc.load(folder / "transformer", device="cpu")
            vectors = run.model.body[0].map(torch.from_numpy(trained["ids"]))
            return replace(rc.inspect(rc.BasicSelfAttention(16), vectors), tokens=trained.tokens)
        if name == "learned positions":
            options |= {"max_length": 64, "steps": 64}
            return rc.inspect(rc.train("recall:count=300", model="transformer", **options), TEXT)
        if name.startswith("translate:"):
            run = rc.train("numbers:count=300", task="translate", model=family, **options)
            return rc.inspect(run, ("twenty-one", "21"))
        if name == "tree":
            find = rc.train("numbers:count=300", task="translate", model="luong", **options)
            return rc.hypotheses(find, "twenty-one", width=3, tokens=4)
        if name == "classify":
            return rc.inspect(rc.train("kindness:count=300", model="bilstm", **options), "the film was not bad")
        options.pop("layers")
        return rc.inspect(rc.train("tastes:users=20,films=20,each=8", model="factors", **options), "user-3,film-4")

    def of(name: str) -> Any:
        if "," in name:
            return [of(one) for one in name.split(",")]
        if name and name not in known:
            known[name] = made(name)
        return known[name] if name else ()

    return of


OF = {  # of each picture, the models that it is drawn from
    "attention": "transformer",
    "arcs": "transformer",
    "alignment": "translate:bahdanau",
    "gates": "lstm",
    "states": "lstm",
    "reach": "rnn,gru,lstm,transformer,ttt-linear",
    "reach-map": "gru",
    "influence": "classify",
    "spectrum": "lstm",
    "memory": "rnn,gru,lstm,transformer,ttt-linear",
    "positions": "learned positions",
    "next": "gru",
    "learning": "ttt-linear",
    "unrolled": "rnn",
    "back-propagation": "rnn",
    "truncation": "rnn",
    "lstm-cell": "lstm",
    "gru-cell": "gru",
    "latent-autoregression": "rnn",
    "arrangements": "translate:bahdanau",
    "encoder-decoder": "translate:sutskever",
    "context-at-each-step": "translate:cho",
    "soft-alignment": "translate:bahdanau",
    "beam-tree": "",
    "task-model": "translate:bahdanau",
    "self-attention": "no parameters",
    "queries-keys-values": "transformer",
    "attention-family": "translate:bahdanau",
    "transformer": "translate:transformer",
    "three-memories": "rnn,ttt-linear,transformer",
    "tastes": "tastes",
}


def draw(name: str, find: Find, lang: str) -> Picture:
    options = {"hypotheses": find("tree")} if name == "beam-tree" else {}
    return rc.picture(name, find(OF[name]), lang=lang, **options)


def test_every_picture_has_its_models() -> None:
    assert set(OF) == set(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn_from_a_trained_model(name: str, find: Find) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    drawn = {lang: draw(name, find, lang) for lang in ("en", "zh")}
    for picture in drawn.values():
        root = ElementTree.fromstring(picture.svg())
        texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert picture.title in texts
        assert len(list(root.iter())) > 12
        figure = graph_objects.Figure(picture.plotly())  # raises for what plotly's schema does not know
        assert isinstance(picture.figure(), graph_objects.Figure)
        assert json.loads(figure.to_json())["layout"]["width"] > 0
        _inside(root)
    assert drawn["en"].title.isascii() or "“" in drawn["en"].title or "–" in drawn["en"].title
    assert any("\u4e00" <= one <= "\u9fff" for one in drawn["zh"].title)


def _inside(root: ElementTree.Element) -> None:
    """Raise for words that begin or end outside the canvas, by a fair estimate of their letters' widths."""
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for one in root.iter("{http://www.w3.org/2000/svg}text"):
        x, y, size = (float(one.get(name, 0)) for name in ("x", "y", "font-size"))
        text = "".join(one.itertext())
        assert 0 <= y <= height + 1, (text, y, height)
        long = size * sum(1.0 if ord(letter) > 0x2E7F else 0.53 for letter in text)
        begin, end = {"start": (0.0, long), "middle": (-long / 2, long / 2), "end": (-long, 0.0)}[
            one.get("text-anchor", "")
        ]
        if one.get("transform") is None:
            assert -1 <= x + begin <= x + end <= width + 1, (text, x + begin, x + end, width)
        else:  # turned to read upwards
            assert -1 <= y - end <= y - begin <= height + 1, (text, y - end, y - begin, height)


def test_words_that_leave_the_canvas_are_found() -> None:
    for x, anchor in ((180, "start"), (30, "middle"), (20, "end")):
        scene = Scene(200, 100)
        scene.words(x, 50, "longer than that", anchor=anchor)
        with pytest.raises(AssertionError):
            _inside(ElementTree.fromstring(scene.svg()))
    scene = Scene(200, 100)
    scene.words(24, 50, "中文的宽度是两倍", size=20, anchor="start")
    _inside(ElementTree.fromstring(scene.svg()))
    scene.words(50, 50, "中文的宽度是两倍", size=20, anchor="start")
    with pytest.raises(AssertionError):
        _inside(ElementTree.fromstring(scene.svg()))


def test_charts_hold_the_numbers_of_the_trace(find: Find) -> None:
    trace = find("transformer")
    chart = rc.picture("attention", trace, layer="layers.0", head=1).plotly()["data"][0]
    np.testing.assert_array_equal(np.array(chart["z"]), trace["layers.0.weights"][1])
    reach = rc.picture("reach", [trace]).plotly()
    np.testing.assert_array_equal(reach["data"][0]["y"], trace["reach.curve"])
    assert reach["layout"]["yaxis"]["type"] == "log"
    lstm = find("lstm")
    points = rc.picture("spectrum", lstm).plotly()["data"]
    assert [len(one["x"]) for one in points] == [16] * 4
    assert "遗忘门: ρ = " in rc.picture("spectrum", lstm, lang="zh").svg()
    cell = rc.picture("lstm-cell", lstm, token=2).svg()
    assert f">{lstm['layers.0.forget_gate'][2].mean():.2f}<" in cell


def test_what_a_diagram_leaves_out_is_said(find: Find) -> None:
    """Ten symbols of a source are too many for a line of nine: the last one, of which c is made, is always drawn."""
    for name in ("encoder-decoder", "context-at-each-step"):
        svg = rc.picture(name, find(OF[name])).svg()
        assert svg.count(">…<") == 1
        assert ">h8<" in svg
        assert ">h9<" not in svg
        assert ">h10<" in svg
    svg = rc.picture("soft-alignment", find("translate:bahdanau")).svg()
    kept = np.sort(np.argsort(-find("translate:bahdanau")["alignment"][0])[:9])
    assert all(f">h{step + 1}<" in svg for step in kept)
    assert "9 of 10 tokens: those with the largest weights" in svg
    assert "12 个词元中权重最大的 8 个" in rc.picture("queries-keys-values", find("transformer"), lang="zh").svg()
    assert "8 of 10 tokens" in rc.picture("task-model", find("translate:bahdanau")).svg()
    assert "tokens" not in rc.picture("queries-keys-values", find("transformer"), token=3).svg()


def test_the_branches_of_a_tree_are_those_of_the_search(find: Find) -> None:
    found = find("tree")
    assert len(found) == 3
    assert all(len(texts) == len(logs) <= 4 for texts, logs in found)
    svg = rc.picture("beam-tree", (), hypotheses=found).svg()
    for texts, logs in found:
        assert f">ln p = {sum(logs):.2f}<" in svg
        assert all(f">{text}<" in svg for text in texts)


def test_hypotheses_are_those_of_the_beam_search_of_the_model() -> None:
    torch.manual_seed(0)
    letters = rc.Tokenizer.train("char", ["abcab"])
    model = rc.LanguageModel("gru", letters.vocab_size, width=8, layers=1).double().eval()
    ids = letters.encode("ab").tolist()
    found = rc.hypotheses(model, "ab", tokenizer=letters, width=2, tokens=3)
    search = rc.Search(width=2, nbest=2, tokens=3, prohibited=letters.unseen)
    assert [logs for _, logs in found] == [one.logprobs for one in rc.beam(model, [ids], search)[0]]
    texts, logs = found[0]
    more = torch.tensor([[*ids, *letters.encode("".join(texts)).tolist()]])
    logp = model(more)[0][0].log_softmax(-1)[1:-1].gather(1, more[0, 2:, None])[:, 0]
    np.testing.assert_allclose(logs, logp.detach(), rtol=1e-9)
    with pytest.raises(ValueError, match="text: empty; give a text to continue or to translate"):
        rc.hypotheses(model, " ", tokenizer=letters)
    with pytest.raises(ValueError, match="model: expected a language model with its tokenizer"):
        rc.hypotheses(model, "ab")


def test_text_in_a_picture_is_text_and_nothing_else() -> None:
    tokens = ["<script>", "&", "\x00", "中", "שלום", "🙂"]
    weights = np.tril(np.ones((1, 6, 6))) / np.arange(1, 7)[None, :, None]
    trace = rc.Trace.of(tokens, {"layers.0.weights": weights})
    for name in ("attention", "arcs"):
        picture = trace.picture(name)
        root = ElementTree.fromstring(picture.svg())
        texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"<script>", "&", "␀", "中", "שלום", "🙂"} <= set(texts)
        assert "<script" not in picture.svg()


def test_files_by_their_ending(tmp_path: Path, find: Find) -> None:
    picture = rc.picture("memory", [find("gru")])
    for ending in ("svg", "json", "html"):
        picture.save(tmp_path / f"a.{ending}")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == picture.svg()
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == picture.plotly()
    with pytest.raises(ValueError, match=r"a.pdf: got the ending '.pdf', expected one of .svg, .png, .json, .html"):
        picture.save(tmp_path / "a.pdf")


@pytest.mark.slow
def test_a_png_has_chinese_letters(tmp_path: Path, find: Find) -> None:
    import shutil

    from PIL import Image

    if not any(shutil.which(name) for name in BROWSERS):
        pytest.skip("no browser")
    picture = rc.picture("gru-cell", find("gru"), lang="zh")
    picture.save(tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (2 * picture.scene.width, 2 * picture.scene.height)
        title = image.convert("L").crop((40, 30, 400, 90))
        assert len(set(title.tobytes())) > 20  # letters, smoothed


def test_a_notebook_shows_a_trace(find: Find) -> None:
    for name in ("gru", "transformer", "translate:bahdanau", "classify", "tastes"):
        shown = find(name)._repr_html_()
        assert shown.startswith("<p>Trace of")
        assert "<svg" in shown


def test_what_cannot_be_drawn_says_what_it_needs(find: Find) -> None:
    with pytest.raises(ValueError, match=r"picture: got 'atention', expected one of .*did you mean attention"):
        rc.picture("atention", find("gru"))
    with pytest.raises(ValueError, match=r"weights: got .*, expected a layer that has it: this model has none"):
        rc.picture("attention", find("gru"))
    with pytest.raises(ValueError, match="lang: got 'fr', expected one of en, zh"):
        rc.picture("memory", find("gru"), lang="fr")
    with pytest.raises(ValueError, match="alignment: this model does not attend to a source"):
        rc.picture("alignment", find("gru"))
    with pytest.raises(ValueError, match="memory: got no trace, expected one of any models"):
        rc.picture("memory")
    with pytest.raises(ValueError, match=r"three-memories|traces: got 1, expected three"):
        rc.picture("three-memories", find("gru"))
    with pytest.raises(ValueError, match=r"head: got 9 of layers.0, expected 0 to 3"):
        rc.picture("attention", find("transformer"), head=9)


def _code(guide: str) -> list[str]:
    """Return the Python blocks of a guide without comments, which are in its language."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide" / guide).read_text(encoding="utf-8"), re.DOTALL)
    return [re.sub(r"  # .*", "", block) for block in blocks]


def test_both_guides_have_the_same_code() -> None:
    assert len(_code("inspect.md")) == 4
    assert _code("inspect.md") == _code("inspect.zh-CN.md")


def test_one_example_of_each_picture_stands_in_the_guide() -> None:
    for language in ("inspect.md", "inspect.zh-CN.md"):
        guide = (ROOT / "docs/guide" / language).read_text(encoding="utf-8")
        assert [name for name in PICTURES if f'"{name}"' not in guide] == []
