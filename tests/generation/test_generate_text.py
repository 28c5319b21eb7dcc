"""Text in, text out: nothing shown is taken back, and stop strings may span tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from generate_models import language_model
from recollect.core.validate import ContractError
from recollect.generation.continuation import StopStrings, generate_text, stream_text
from recollect.generation.sampling import generate, stream
from recollect.generation.settings import Settings
from recollect.models.translation import TranslationConfig, Translator

PIECES = ["a", "b", "ab", "<", "end", ">", "é"]


class Pieces:
    """A tokenizer whose ids stand for strings; each "é" is one id whose text comes with the id after it."""

    def encode(self, text: str) -> np.ndarray:
        return np.array([PIECES.index(character) for character in text], dtype=np.int64)

    def decode(self, ids: list[int]) -> str:
        return "".join(PIECES[i] for i in ids)

    def stream(self, after: str = "") -> Decoding:
        return Decoding()


class Decoding:
    def __init__(self) -> None:
        self.waiting = ""

    def step(self, id: int) -> str | None:
        text, self.waiting = self.waiting + PIECES[id], ""
        if id == 6:
            text, self.waiting = text[:-1], "é"
        return text or None


def cut(text: str, stops: list[str]) -> tuple[str, bool]:
    """End a text before the stop string that is complete first, of those the longest: the definition."""
    for end in range(1, len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            return text[: end - max(map(len, complete))], True
    return text, False


STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3)


@given(st.lists(st.text("abc", max_size=4), max_size=8), STOPS)
def test_stop_strings_cut_like_the_definition_however_the_text_is_cut(pieces, stops):
    watch = StopStrings(stops)
    shown = ""
    for piece in pieces:
        shown += watch.step(piece)
        assert cut("".join(pieces), stops)[0].startswith(shown)  # nothing has to be taken back
    want, found = cut("".join(pieces), stops)
    assert (shown + watch.rest(), watch.found) == (want, found)


def test_what_cannot_be_a_stop_string_is_shown_at_once():
    watch = StopStrings(["<end>"])
    assert [watch.step(piece) for piece in ["a<", "en", "d", "b", "<x", "<end", ">z", "q"]] == [
        "a",
        "",
        "",
        "<endb",
        "<x",
        "",
        "",
        "",
    ]
    assert watch.found
    assert watch.rest() == ""


@pytest.mark.parametrize("settings", [Settings(tokens=25, seed=3), Settings(tokens=25, seed=3, stop=[4])])
@pytest.mark.parametrize("stop", [[], ["ba"], ["aab", "<>", "ab<"], ["é<", "bb"]])
def test_streamed_text_equals_collected_text_and_the_definition(settings, stop):
    model, tokenizer, prompts = language_model("mixed", seed=4), Pieces(), ["ab", "<", "é>a", "b"]
    pieces = stream_text(model, tokenizer, prompts, settings, stop=stop)
    texts = [""] * 4
    for step in pieces:
        texts = [text + piece for text, piece in zip(texts, step, strict=True)]
    passages = generate_text(model, tokenizer, prompts, settings, stop=stop)
    assert texts == [p.text for p in passages] == [p.text for p in pieces.finish()]
    plain = generate(model, [tokenizer.encode(p) for p in prompts], settings)
    for passage, whole in zip(passages, plain, strict=True):
        said = passage.generation.ids
        assert said == whole.ids[: len(said)]
        without = [i for i in whole.ids if i not in settings.stop]
        # A final é never becomes certain: the tokenizer's stream holds it back.
        want, found = cut(tokenizer.decode(without).removesuffix("é"), stop)
        assert passage.text == want
        assert passage.generation.reason == ("stop" if found else whole.reason)


def test_a_stop_string_spans_tokens_and_ends_only_its_row():
    model, settings = language_model("lstm", seed=4), Settings(tokens=40, seed=1)
    passages = generate_text(model, Pieces(), ["a", "b", "<"], settings, stop=["<end"])
    spanning = [p for p in passages if p.generation.reason == "stop"]
    assert spanning
    for p in spanning:
        assert p.generation.ids[-2:] == [3, 4]
        assert "<end" not in p.text
        memory = model.eval()(torch.tensor([Pieces().encode("ab<"[passages.index(p)]).tolist() + p.generation.ids]))[1]
        assert p.generation.memory.equals(memory, 1e-9)


@pytest.mark.parametrize("stop", ["ab", [""], [1]])
def test_bad_stop_strings_are_refused(stop):
    with pytest.raises(ContractError, match=r"stop: got .* expected a list of strings that are not empty"):
        stream_text(language_model("lstm"), Pieces(), ["a"], stop=stop)


def test_one_text_is_no_list_of_texts():
    with pytest.raises(ContractError, match="prompts: got 'ab', expected a list of texts"):
        stream_text(language_model("lstm"), Pieces(), "ab")


def test_an_empty_text_needs_a_begin_id():
    model = language_model("lstm")
    with pytest.raises(ContractError, match=r"prompts\[0\]: got no ids"):
        generate_text(model, Pieces(), [""])
    assert generate_text(model, Pieces(), [""], Settings(tokens=3, begin=0))[0].generation.ids


def test_what_needs_a_source_is_refused_at_the_call_before_any_text():
    """Not at the first `next`: whoever has shown the prompt by then has shown too much."""
    model = Translator(TranslationConfig("transformer", 7, 7, width=8, hidden=8, heads=2)).eval()
    with pytest.raises(ContractError, match="memory"):
        stream_text(model, Pieces(), ["ab"], Settings(tokens=3))
    with pytest.raises(ContractError, match="memory"):
        stream(model, [[1]], Settings(tokens=3))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"prompts": "ab"}, "prompts"),
        ({"prompts": [""]}, "no ids"),
        ({"stop": [""]}, "stop"),
        ({"rows": [-1]}, "rows"),
        ({"settings": Settings(stop=[99])}, "stop"),
    ],
)
def test_all_else_is_checked_at_the_call_too(asked, message):
    with pytest.raises(ContractError, match=message):
        stream_text(language_model("lstm"), Pieces(), **({"prompts": ["ab"]} | asked))
