"""The story's small examples: what apple means, noun or verb, kindness with negation, and which words matter."""

from __future__ import annotations

import pytest
import torch

import recollect as rc
from recollect.tasks.tag import TagTask


def trained(data, model, folder, steps=200, **settings):
    own = {} if model == "majority" else {"rate": 0.01, "evaluate_every": 100}
    own |= {} if model in ("majority", "bag-of-words") else {"width": 24}
    return rc.train(data, model=model, budget=f"{steps}steps", out=folder, **own, **settings)


def test_without_context_apple_is_the_majority(tmp_path):
    """C17: a network of the word alone has the accuracy of the more frequent meaning."""
    run = trained("apple:share=70", "per-word", tmp_path / "run", steps=100)
    naive = {row.name: row.value for row in run.task.baselines(run.dataset())}
    assert run.evaluate().value == pytest.approx(naive["most frequent tag"], abs=1e-9)
    assert naive["most frequent tag"] == naive["most frequent tag of each word"]


def test_left_to_right_is_blind_to_what_stands_on_the_right(tmp_path):
    """C17: evidence to the left is enough for a GRU, evidence to the right needs both directions."""
    ahead, behind = (trained(f"apple:right={side}", "gru", tmp_path / f"gru{side}") for side in (0, 100))
    assert ahead.evaluate().value == 1.0
    assert behind.evaluate().value < 0.6
    both = trained("apple", "bigru", tmp_path / "both")
    assert both.evaluate().value == 1.0
    tags = both.predict("look , apple sells phones today so .")[0].targets[0].text.split()
    assert tags[2] == "company"


def test_noun_or_verb_depends_on_the_place(tmp_path):
    run = trained("verbs", "gru", tmp_path / "run")
    assert run.evaluate().value > 0.99
    by_word = run.task.baselines(run.dataset())[1]
    assert by_word.value < 0.95
    assert run.predict("we book a book .")[0].targets[0].text == "PRON VERB DET NOUN PUNCT"


def test_kindness_turns_with_a_negation_that_a_bag_of_words_cannot_place(tmp_path):
    bag = trained("kindness", "bag-of-words", tmp_path / "bag")
    assert bag.evaluate().value < 0.65
    run = trained("kindness", "gru", tmp_path / "gru", steps=400)
    assert run.evaluate().value > 0.98
    labels = [run.predict(f"the film was {words} today .")[0].targets[0].text for words in ("good", "not good")]
    assert labels == ["kind", "unkind"]


def test_while_it_reads_a_classifier_says_what_it_thinks_so_far(tmp_path):
    """The scores at each step are those of the text so far: the negation decides before the sentence ends."""
    run = trained("kindness", "gru", tmp_path / "gru", steps=400)
    words = "the film was not good today ."
    scores, _ = run.model(torch.from_numpy(run.tokenizer.encode(words))[None])
    found = [run.assets["labels"].names[int(i)] for i in scores[0].argmax(-1)]
    assert found[4:] == ["unkind"] * 3


def test_attention_shows_which_words_matter(tmp_path):
    """The pool's weight lies at the kind or unkind word, not at the thing, the day or the fillers."""
    run = trained("kindness:negated=0", "per-word", tmp_path / "words", pooling="attention", steps=300)
    assert run.evaluate().value > 0.98
    look = run.attention("the hotel was very rude today .", "")
    weight = dict(zip(look["source"], look["weights"][0], strict=True))
    assert sum(weight.values()) == pytest.approx(1)
    assert weight.pop("rude") > 2 * max(weight.values())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformer", "bert", "linear-attention", "ttt-linear", "lstm", "bilstm", "cnn"])
def test_the_line_reads_kindness(family, tmp_path):
    run = rc.train("kindness", model=family, budget="1000steps", out=tmp_path / "run", width=32, rate=3e-3)
    assert run.evaluate().value > 0.95, family


def test_a_field_of_tags_repairs_what_single_tags_break(tmp_path):
    """A CRF decodes the whole sequence: its best tags are never less probable than those chosen one by one."""
    run = trained("verbs", "per-word", tmp_path / "run", steps=100, crf=True)
    assert run.evaluate().value > 0.97  # transitions see the neighbour's tag, which the word alone does not
    assert isinstance(run.task, TagTask)
