"""Match through every verb: answers that are pointed at, texts that are ranked; bad input; the story's examples."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import recollect as rc
from command_line import ask, check_killed_and_resumed
from recollect.data.error import DataError
from recollect.data.labels.labelled import Vocabulary
from recollect.data.matches.match_files import Columns, read_questions
from recollect.data.matches.matches import MatchBatches, gather_matches, load_matches, occurrences
from recollect.data.synthetic.match_generators import MATCH_TASKS, generated_questions
from recollect.evaluation.bag_of_words import bm25
from recollect.models.matching import MATCHERS, Matcher, MatcherConfig
from recollect.tasks.match import MatchTask, candidates, log_probabilities
from tiers import slow_after

STORY = "story,asked,found\n" + "\n".join(
    f"ann {verb} the {thing} number {i} today .,what {verb} ann ?,{thing}"
    for i in range(30)
    for verb, thing in [(("took", "book"), ("saw", "lamp"), ("lost", "key"))[i % 3]]
)
RANKED = "query\ttext\tlabel\n" + "".join(
    f"colour {i} ?\t{i} is {colour}\t1\ncolour {i} ?\t{i} was lost\t0\n"
    for i, colour in enumerate(["red", "blue"] * 10)
)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


# ---- data ----------------------------------------------------------------------------------------


def test_built_ins_are_the_same_again_and_have_their_answers():
    for name in MATCH_TASKS:
        first = list(generated_questions(f"{name}:count=100"))
        assert first == list(generated_questions(f"{name}:count=100"))
        assert len({one[:4] for one in first}) == 100
        for one in first:
            if one.answer is None:
                assert sum(one.right) == 1
            else:
                assert occurrences(one.answer.split(), one.texts[0].split())


def test_a_story_is_answered_by_the_last_place():
    for one in generated_questions("stories:count=100"):
        name = one.query.split()[2]
        moves = [line.split() for line in one.texts[0].split(" . ") if line.split()[0] == name]
        assert moves[-1][-1 if moves[-1][-1] != "." else -2] == one.answer


def test_the_formats_give_the_same(tmp_path):
    columns = Columns(text="story", query="asked", answer="found")
    table = list(read_questions(write(tmp_path / "a.csv", STORY), columns))
    lines = [line.split(",") for line in STORY.splitlines()[1:]]
    objects = "\n".join(json.dumps(dict(zip(("story", "asked", "found"), line, strict=True))) for line in lines)
    again = list(read_questions(write(tmp_path / "a.jsonl", objects), columns))
    assert [one[:4] for one in table] == [one[:4] for one in again]
    assert table[0].answer == "book"
    ranked = list(read_questions(write(tmp_path / "b.tsv", RANKED)))
    assert ranked[0][:4] == ("colour 0 ?", ("0 is red", "0 was lost"), None, (True, False))
    assert len(ranked) == 20


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (
            "a.csv",
            "text,query,reply\nx,y,z\n",
            r"a\.csv, line 2: no column 'label'; there are: text, query, reply; name",
        ),
        ("a.csv", "text,ask,answer\nx,y,x\n", r"a\.csv, line 2: no column 'query'; there are: text, ask, answer"),
        ("a.csv", "text,query,answer\nx,y,x\nx,,x\n", r"a\.csv, line 3: the query is empty"),
        ("a.csv", "text,query,answer\n,y,x\n", r"a\.csv, line 2: the text is empty"),
        ("a.csv", "text,query,answer\nx,y\n", r"a\.csv, line 2: 2 cells, but the first line has 3"),
        ("a.csv", "query,text,label\nx,y,2\n", r"a\.csv, line 2: label '2', expected 1 \(right\) or 0 \(wrong\)"),
        ("a.csv", "query,text,label\nx,y,0\nx,z,0\n", r"a\.csv, line 2: none of the 2 texts of 'x' is right"),
        ("a.csv", "query,text,label\nx,y,1\n", r"a\.csv, line 2: the query 'x' has one text"),
        ("a.csv", "query,text,label\nx,y,1\nx,z,1\n", r"a\.csv, line 2: all 2 texts of 'x' are right; add wrong ones"),
        ("a.csv", 'query,text,label\n"x,y,1\n', "not a table that can be read"),
        ("a.jsonl", '{"text": "is None", "query": "y", "answer": null}\n', r"line 1: the answer is empty"),
        (
            "a.jsonl",
            '{"text": "a", "query": "y", "answer": ["a"]}\n',
            r"line 1: field 'answer' is a list, not a string",
        ),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.txt", "x y z\n", r"a\.txt: not a table; questions are a \.csv"),
    ],
)
def test_bad_rows_are_named(name, content, error, tmp_path):
    with pytest.raises(DataError, match=error):
        list(read_questions(write(tmp_path / name, content)))


def test_what_does_not_fit_is_refused_on_the_command_line(tmp_path):
    out = ("--out", str(tmp_path / "run"))
    assert (
        "storis: no such file; did you mean stories" in ask("train", "storis", "--task", "match", *out, code=2).stderr
    )
    wrong = write(tmp_path / "a.csv", STORY.replace(",lamp", ",lamb"))
    own = [word for name in ("text=story", "query=asked", "answer=found") for word in ("--set", name)]
    error = "a.csv, line 12: the answer 'lamb' does not occur in its text"
    assert error in ask("train", wrong, "--task", "match", *own, *out, code=2).stderr
    ranked = write(tmp_path / "b.tsv", RANKED)
    both = ask("train", "stories:count=50", "--set", f"valid={ranked}", "-m", "gru", *out, code=2)
    assert "b.tsv, line 2: got the other kind of question, expected an answer in a text" in both.stderr
    short = ask("train", "reports:count=50", "-m", "transformer", "--set", "max_length=5", *out, code=2).stderr
    assert "max_length: got 5, expected at least" in short
    made = rc.train("stories:count=50", model="gru", width=8, budget="2steps", out=tmp_path / "made")
    assert "expected text | query, divided by tabs" in ask("predict", str(made.folder), "no query", code=2).stderr
    with pytest.raises(DataError, match="candidates=1"):
        list(generated_questions("answers:candidates=1"))


# ---- probabilities -------------------------------------------------------------------------------


def question_part(data, **options):
    found = load_matches(data, Vocabulary(), Columns())
    config = MatcherConfig(
        "gru", found.tokenizer.vocab_size + 1, width=8, layers=1, points=found.kind.points, pointers=found.kind.pointers
    )
    torch.manual_seed(0)
    return found, Matcher(config).double().eval()


@pytest.mark.parametrize("data", ["stories:count=30", "reports:count=30", "answers:count=30"])
def test_probabilities_sum_to_one_and_padding_changes_nothing(data):
    found, model = question_part(data)
    rows = found.train[:6]
    batch = gather_matches(rows)
    logs = log_probabilities(model, batch).detach()
    assert torch.allclose(logs.exp().sum(2), torch.ones(()).double())
    for i, one in enumerate(rows):
        alone = log_probabilities(model, gather_matches([one]))[0]
        assert torch.allclose(alone, logs[i, :, : alone.shape[1]])
        assert not torch.isfinite(logs[i, :, one.right.shape[1] :]).any()
    expected = 0.0
    for i, one in enumerate(rows):
        for own, right in zip(logs[i], one.right, strict=True):
            expected -= math.log(sum(float(own[s].exp()) for s in np.flatnonzero(right)))
    loss = MatchTask().loss(model, batch, None)
    assert float(loss.total.detach()) == pytest.approx(expected)
    assert loss.count == 6


def test_an_answer_is_worth_all_places_where_it_stands():
    found, model = question_part("reports:count=30")
    one = next(each for each in found.train if each.question.query == "who said it ?")
    logs = log_probabilities(model, gather_matches([one]))[0].detach().numpy()
    names, values = candidates(one, logs, found.tokenizer, found.kind)
    symbols = found.tokenizer.symbols(one.question.texts[0])
    first, last = np.exp(logs[:, one.begins :])
    for name in ("the", ".", one.question.answer):
        size = len(name.split())
        places = [i for i in range(len(symbols)) if symbols[i : i + size] == name.split()]
        expected = sum(first[i] * last[i + size - 1] for i in places)
        assert math.exp(values[names.index(name)]) == pytest.approx(expected)


def test_batches_hold_every_question_once_and_resume():
    part = load_matches("stories:count=60", Vocabulary(), Columns()).train
    batches = MatchBatches(part, 8, seed=1)
    source = iter(batches)
    for _ in range(9):
        next(source)
    state = json.loads(json.dumps(batches.state(), default=int))
    expected = [next(source).x for _ in range(5)]
    again = MatchBatches(part, 8, seed=5)
    again.load_state(state)
    source = iter(again)
    assert all((next(source).x == x).all() for x in expected)


def test_bm25_by_hand():
    texts = [["a", "b"], ["b", "b", "c", "c"]]
    idf = math.log(1 + (2 - 1 + 0.5) / 1.5)
    norm = 1.2 * (0.25 + 0.75 * 2 / 3)
    found = bm25(["a"], texts, Counter({"a": 1, "b": 2, "c": 1}), 2)
    assert found == pytest.approx([idf * 2.2 / (1 + norm), 0])


# ---- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", slow_after(1, ("gru", "bigru", "cnn", "transformer", "linear-attention", "bert")))
def test_a_matcher_keeps_the_laws(family):
    torch.manual_seed(0)
    rc.check_layer(Matcher(family, vocab_size=6, width=8, heads=2, layers=1, pointers=2).double().eval())


def test_a_query_that_is_forgotten_breaks_the_law_of_the_split():
    class Forgetful(Matcher):
        def _queries(self, x, steps, before, valid):
            return super()._queries(x, steps, torch.zeros_like(before), valid)

    torch.manual_seed(0)
    with pytest.raises(rc.LawBroken, match="split"):
        rc.check_layer(Forgetful("gru", vocab_size=3, width=8, layers=1).double().eval())


# ---- the verbs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["reports:count=200", "answers:count=200"])
def test_every_verb_from_the_command_line(data, tmp_path):
    folder = str(tmp_path / "run")
    trained = ask("train", data, "-m", "gru", "--budget", "4steps", "--set", "width=8", "--out", folder)
    assert f"Next: recollect predict {folder}" in trained.stderr
    assert "MRR" in ask("evaluate", folder).stdout
    one = next(generated_questions(data))
    line = f"{one.texts[0]} | {one.query}" if one.answer else " | ".join((one.query, *one.texts))
    typed = json.loads(ask("predict", folder, line, "--json").stdout)
    found = rc.load(folder).predict([line.replace(" | ", "\t")])[0]
    assert [each["text"] for each in typed["targets"]] == [each.text for each in found.targets]
    assert rc.load(folder).evaluate("answers:count=20" if one.answer is None else "reports:count=20").value >= 0
    assert "best validation accuracy" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    page = str(tmp_path / "page.html")
    if one.answer:
        ask("predict", folder, line, "--maps", page)
        assert "said" in Path(page).read_text(encoding="utf-8")
    else:
        assert "those that point at answers" in ask("predict", folder, line, "--maps", page, code=2).stderr
    assert json.loads(ask("plan", data, "-m", "gru", "--set", "width=8", "--json").stdout)["fits"]
    scores = rc.load(folder).task.item_scores(rc.load(folder).model, rc.load(folder).dataset(), "test")
    assert len(scores.numerators) == 20


def test_tables_of_ones_own(tmp_path):
    data = write(tmp_path / "story.csv", STORY)
    own = {"task": "match", "text": "story", "query": "asked", "answer": "found", "width": 16, "rate": 0.03}
    made = rc.train(data, model="gru", budget="80steps", out=tmp_path / "story", **own)
    assert made.evaluate().value == 1.0
    assert made.predict([("ann saw the lamp number 7 today .", "what saw ann ?")])[0].targets[0].text == "lamp"
    ranked = write(tmp_path / "ranked.tsv", RANKED)
    made = rc.train(ranked, task="match", model="gru", budget="60steps", out=tmp_path / "ranked", width=16, rate=0.03)
    found = made.predict("colour 3 ? | 3 was lost | 3 is blue")[0].targets
    assert [one.text for one in found] == ["3 is blue", "3 was lost"]
    assert sum(one.score for one in found) == pytest.approx(1)


@pytest.mark.parametrize("family", slow_after(1, [name for name in MATCHERS if name != "gru"]))
def test_every_family_trains_and_loads(family, tmp_path):
    made = rc.train("stories:count=60", model=family, budget="2steps", out=tmp_path / "run", width=16)
    ids = torch.ones(1, 5, dtype=torch.long)
    assert torch.equal(made.model(ids)[0], rc.load(tmp_path / "run").model(ids)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("data", "model"), [("stories:count=60", "bigru"), ("answers:count=60", "gru")])
def test_killed_and_resumed_it_ends_bit_equal(data, model, tmp_path):
    settings = ("evaluate_every=8", "dropout=0.2", "width=8", "word_dropout=0.1")
    options = ["-m", model, "--budget", "40steps", *(word for one in settings for word in ("--set", one))]
    check_killed_and_resumed("train", data, *options, folder=tmp_path)


# ---- the story's examples ------------------------------------------------------------------------


def trained(data, folder, model="bigru", steps=300):
    own = {"width": 32, "rate": 0.01, "evaluate_every": 100}
    return rc.train(data, model=model, budget=f"{steps}steps", out=folder, **own)


@pytest.mark.slow
def test_asked_when_a_report_gives_its_date(tmp_path):
    """C67: attention lies on the date where it is asked for, and not on it where something else is."""
    made = trained("reports", tmp_path / "run")
    dates, others = 0, 0
    questions = [one for one in generated_questions("reports:count=2200") if one.query == "when ?"][-60:]
    for one in questions:
        words = one.texts[0].split()
        for query in ("when ?", "where ?"):
            weights = made.attention(f"{one.texts[0]} | {query}", "")["weights"]
            is_date = words[int(weights[0].argmax())] in one.answer.split()
            dates += is_date and query == "when ?"
            others += is_date and query == "where ?"
    assert dates >= 0.95 * len(questions)
    assert others <= 0.05 * len(questions)
    assert made.evaluate().value >= 0.95


@pytest.mark.slow
def test_it_refers_to_what_the_reason_is_about(tmp_path):
    """K17: the same sentence, and *it* is the piano or the door by the last word."""
    made = trained("pronouns", tmp_path / "run", steps=200)
    assert made.evaluate().value >= 0.95
    sentence = "the piano did not fit through the door because it was {} . | it ?"
    found = [made.predict(sentence.format(word))[0].targets[0].text for word in ("too wide", "too narrow")]
    assert found == ["piano", "door"]
    naive = {one.name: one.value for one in made.task.baselines(made.dataset())}
    assert max(naive.values()) < 0.4


@pytest.mark.slow
def test_word_order_tells_texts_apart_that_a_bag_of_words_cannot(tmp_path):
    """S37: a joint scorer of pairs finds who chased whom; BM25 draws between the two orders."""
    made = trained("answers:candidates=4", tmp_path / "run")
    assert made.evaluate().value >= 0.9
    naive = {one.name: one.value for one in made.task.baselines(made.dataset())}
    assert naive["BM25 on words"] <= 0.55


@pytest.mark.slow
def test_a_story_is_read_and_its_question_answered_by_pointing(tmp_path):
    """K13: of a network of single words only chance is left; one that remembers finds the last place."""
    alone = trained("stories", tmp_path / "words", "per-word", 100)
    made = trained("stories", tmp_path / "run", "gru", 800)
    assert alone.evaluate().value < 0.6
    assert made.evaluate().value > 0.9
