"""The story's small examples: what apple means, noun or verb, kindness with negation, and which words matter."""

from __future__ import annotations

import random

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


def drawn_rows(path, header, row, count=400):
    """Write a table of different rows."""
    draw = random.Random(0)
    rows = dict.fromkeys(row(draw) for _ in range(4 * count))
    path.write_text("\n".join([header, *list(rows)[:count]]) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_in_a_chinese_sentence_the_food_matters_and_the_running_does_not(tmp_path):
    """K18: who ran where, and what was eaten there: a meal or a snack is told by the food, not by the way there."""
    foods = {"meal": ("牛肉面", "炒米饭"), "snack": ("冰淇淋", "巧克力")}

    def sentence(draw):
        label = draw.choice(sorted(foods))
        way = draw.choice(("走", "跑", "赶", "冲")) + "到" + draw.choice(("面馆", "小店", "车站", "广场"))
        when = draw.choice(("昨天", "今天")) + draw.choice(("中午", "晚上"))
        return f"{draw.choice('他她你')}{when}{way}吃了{draw.choice('俩仨')}{draw.choice(foods[label])},{label}"

    data = drawn_rows(tmp_path / "meals.csv", "text,label", sentence)
    run = trained(data, "gru", tmp_path / "run", task="classify", steps=100)
    assert run.evaluate().value > 0.98

    def snack(text):
        return next(one.score for one in run.predict(text)[0].targets if one.text == "snack")

    whole = snack("她昨天中午跑到小店吃了仨冰淇淋")
    assert whole > 0.95
    assert abs(snack("她昨天中午到小店吃了仨冰淇淋") - whole) < 0.05  # without the running
    assert abs(snack("昨天中午跑到小店吃了仨冰淇淋") - whole) < 0.05  # without her
    assert whole - snack("她昨天中午跑到小店吃了仨牛肉面") > 0.9


@pytest.mark.slow
def test_a_verb_looks_at_what_does_it_and_not_at_the_article(tmp_path):
    """K19: asked who walks, the weight lies at the animal that does; at "the" and at the other animal is little."""
    animals = ("cat", "dog", "horse", "duck", "goat", "sheep")
    verbs, places = ("walks", "runs", "sleeps", "waits"), ("behind", "before", "near")

    def question(draw):
        (one, other), verb = draw.sample(animals, 2), draw.choice(verbs)
        when = draw.choice(("", "today ", "now and then "))
        return f"{when}the {one} {verb} {draw.choice(places)} the {other} on the street,who {verb} ?,{one}"

    data = drawn_rows(tmp_path / "who.csv", "text,query,answer", question)
    run = trained(data, "gru", tmp_path / "run", task="match", steps=150)
    assert run.evaluate().value > 0.95
    look = run.attention("today the horse walks near the goat on the street | who walks ?", "")
    words, weights = look["source"], look["weights"][0].tolist()
    assert words[:4] == ["today", "the", "horse", "walks"]
    assert weights[2] > 10 * max(weight for word, weight in zip(words, weights, strict=True) if word != "horse")


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
