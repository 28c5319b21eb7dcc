"""Classify and tag through every verb: train, kill and resume bit-equal, evaluate, predict, plan, card; bad input."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

import recollect as rc
from command_line import ask, check_killed_and_resumed, run
from recollect.models.classification import CLASSIFIERS
from recollect.models.tagging import TaggerConfig
from recollect.runs.plan import forecast
from recollect.runs.train import configure
from recollect.tasks.register import guess_task
from tiers import slow_after

CSV = "review,mood\n" + "\n".join(
    f"the {'fine' if i % 2 else 'dull'} film {i},{'good' if i % 2 else 'bad'}" for i in range(60)
)
CONLL = "\n\n".join(f"Ann{i} B-PER\nsees O\nBo B-PER\nLee I-PER" for i in range(40)) + "\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_task_is_guessed_from_the_data(tmp_path):
    assert [
        guess_task(data) for data in ("apple", "verbs:count=10", "kindness", "a.conllu.gz", "b.conll", "c.txt")
    ] == [
        "tag",
        "tag",
        "classify",
        "tag",
        "tag",
        "language",
    ]


@pytest.mark.parametrize("data", ["kindness:count=300", "verbs:count=300"])
def test_every_verb_from_the_command_line(data, tmp_path):
    folder = str(tmp_path / "run")
    trained = ask("train", data, "-m", "gru", "--budget", "6steps", "--set", "width=8", "--out", folder)
    assert f"Next: recollect predict {folder}" in trained.stderr
    assert "accuracy" in ask("evaluate", folder).stdout
    rows = json.loads(ask("evaluate", folder, "--json").stdout)
    assert len(rows["confusion"]) == len(rows["labels"])
    text = "the film was good ."
    assert ask("predict", folder, text).stdout.startswith(f"{text}\t")
    found = json.loads(ask("predict", folder, text, "--json").stdout)
    assert found["source"] == text
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "best validation accuracy" in card
    assert "bits per character" not in card
    assert json.loads(ask("plan", data, "-m", "gru", "--set", "width=8", "--json").stdout)["fits"]


def test_a_table_of_ones_own(tmp_path):
    data = write(tmp_path / "films.csv", CSV)
    options = {"task": "classify", "text": "review", "label": "mood", "model": "bag-of-words"}
    trained = rc.train(data, budget="80steps", out=tmp_path / "run", rate=0.1, **options)
    assert trained.evaluate().value == 1.0
    found = trained.predict("a fine film")[0].targets
    assert [one.text for one in found] == ["good", "bad"]
    assert sum(one.score for one in found) == pytest.approx(1)
    other = write(tmp_path / "other.csv", "review,mood\nthe dull film,bad\n")
    assert rc.load(tmp_path / "run").evaluate(other).value == 1.0
    lines = write(tmp_path / "lines.txt", "fine film\ndull film\n")
    assert [row.targets[0].text for row in trained.predict(lines)] == ["good", "bad"]


def test_tags_of_ones_own_with_letters_and_a_crf(tmp_path):
    data = write(tmp_path / "names.conll", CONLL)
    settings = {"letters": True, "crf": True, "least": 2, "lowercase": True, "convert": "bioes", "word_dropout": 0.1}
    trained = rc.train(data, model="bilstm", budget="60steps", out=tmp_path / "run", width=16, rate=0.02, **settings)
    scores = trained.evaluate()
    assert scores.decisive == "span_f1"
    assert scores.value == 1.0
    assert trained.predict("Ann99 sees Bo Lee")[0].targets[0].text == "S-PER O B-PER E-PER"
    again = rc.load(tmp_path / "run")
    assert again.tokenizer.letter_count > 0
    assert again.evaluate().value == 1.0


@pytest.mark.parametrize("family", slow_after(3, CLASSIFIERS))
@pytest.mark.parametrize("task", ["classify", "tag"])
def test_every_family_trains_and_loads(task, family, tmp_path):
    if task == "tag" and family not in TaggerConfig.families:
        pytest.skip("a bag of words has no tags")
    data = "kindness:count=60" if task == "classify" else "verbs:count=60"
    made = rc.train(data, model=family, budget="2steps", out=tmp_path / "run")
    first = made.model(torch.zeros(1, 5, dtype=torch.long))[0]
    again = rc.load(tmp_path / "run").model(torch.zeros(1, 5, dtype=torch.long))[0]
    assert torch.equal(first, again)


def test_sizes_have_as_many_parameters_for_every_family():
    counts = {}
    for family in ("lstm", "bilstm", "transformer", "bert", "cnn", "per-word"):
        facts = configure("kindness:count=60", model=family)
        task = facts.make_task()
        config = task.config(family, "tiny", task.open(facts.data), {})
        model = task.build(vars(config))
        counts[family] = sum(p.numel() for p in model.encoder.parameters())
    assert all(200_000 < count <= 250_000 for count in counts.values()), counts


def test_a_layer_of_ones_own_reads_labels(tmp_path):
    class Plain(rc.GRU):
        def __init__(self, width):
            super().__init__(width, width)

    made = rc.train("verbs:count=100", task="tag", model=Plain, budget="2steps", out=tmp_path / "run", width=8)
    assert made.evaluate().value >= 0


def test_a_plan_is_made(tmp_path):
    facts = forecast(configure("verbs:count=200", model="gru", budget="100steps", width=8), seconds=0.05)
    assert facts["updates"] == 100
    assert facts["memory_bytes"]["20"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "model", "own", "text"),
    [
        ("kindness:count=400", "bilstm", ["average=0.9"], "the film was good ."),
        ("verbs:count=400", "bigru", [], "the duck swims ."),
        ("films.csv", "bert", ["text=review", "label=mood", "pooling=class-token"], "the dull film 99"),
        ("names.conll", "bilstm", ["crf=true", "letters=true", "least=2", "average=0.9"], "Ann99 sees Bo Lee"),
    ],
)
def test_killed_and_resumed_it_ends_bit_equal_and_predicts(data, model, own, text, tmp_path):
    if data.endswith(("csv", "conll")):
        data = write(tmp_path / data, CSV if data.endswith("csv") else CONLL)
    settings = ("evaluate_every=4", "dropout=0.2", "word_dropout=0.1", "width=16", *own)
    options = ["-m", model, "--budget", "40steps", *(word for one in settings for word in ("--set", one))]
    options += ["--task", "classify"] if data.endswith("csv") else []
    whole, killed = check_killed_and_resumed("train", data, *options, folder=tmp_path)
    typed = json.loads(run("predict", killed, text, "--json").stdout)
    found = rc.load(whole).predict(text)[0]
    assert typed["targets"][0]["text"] == found.targets[0].text
    assert typed["targets"][0]["score"] == pytest.approx(found.targets[0].score)


def test_stopped_and_resumed_in_one_process_it_is_bit_equal(tmp_path):
    settings = {"model": "bigru", "width": 8, "dropout": 0.2, "word_dropout": 0.1, "evaluate_every": 3}
    whole = rc.train("verbs:count=100", budget="10steps", out=tmp_path / "whole", schedule="constant", **settings)
    part = rc.train("verbs:count=100", budget="5steps", out=tmp_path / "part", schedule="constant", **settings)
    ask("resume", str(part.folder), "--budget", "5steps")
    ours, theirs = (
        load_file(one.folder / "checkpoints" / "step-00000010" / "model.safetensors") for one in (whole, part)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


# ---- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "options", "error"),
    [
        ("a.csv", CSV, ["--task", "classify"], "a.csv, line 1: no column 'text'; there are: review, mood"),
        ("a.csv", CSV, ["--task", "classify", "--set", "text=review", "--set", "label=mod"], "no column 'mod'"),
        ("b.txt", "good a\n" * 20, ["--task", "classify"], "every label is 'good'"),
        ("c.txt", "good a\nbad \n", ["--task", "classify"], "c.txt, line 2: the text is empty"),
        ("d.conll", "a O\nb I-X\n", ["--set", "scheme=bio"], "d.conll, line 1, word 2: tag 'I-X' after 'O'"),
        ("d.conll", "a O\nb I-X\n\nc B-Y\n", [], "d.conll, line 1, word 2: tag 'I-X' after 'O'"),
        ("d.conll", "a NOUN\n" * 20, ["--set", "convert=bio"], "d.conll, line 1, word 1: tag 'NOUN' is not one of a"),
        ("d.conll", "a X\n\n" * 20, [], "d.conll: every label is 'X'; expected at least two"),
        ("d.conll", "a X\nb Y\n\n" * 20, ["--set", "label=3"], "d.conll, line 1: no column '3'; there are: 1, 2"),
        ("d.jsonl", '{"words": ["a", "b"], "tags": ["X"]}', ["--task", "tag"], "d.jsonl, line 1: got 2 words and 1"),
        ("d.jsonl", '{"words": [], "tags": []}', ["--task", "tag"], "d.jsonl, line 1: no words; remove the line"),
        ("e.conll", "word\n", [], "e.conll, line 1: 1 cells, expected a word and its tag"),
        ("f.conll", CONLL, ["-m", "bag-of-words"], "model: got 'bag-of-words', expected one of per-word"),
        ("g.conll", CONLL, ["--set", "pooling=max"], "pooling: no such setting"),
        ("h.csv", "text,label\n" + "a,x\nb,y\n" * 9, ["--task", "classify", "--set", "stack=3"], "stack: got 3, but "),
        (
            "i.conll",
            "a b\n" * 5 + "\n" + "a c\n\n" * 20,
            ["-m", "bert", "--set", "max_length=4"],
            "max_length: got 4, ex",
        ),
        ("h.csv", CSV, ["--task", "classify", "-m", "cnn", "--set", "pooling=sum"], "expected one of last, mean"),
    ],
)
def test_bad_input_is_refused_with_its_place(name, content, options, error, tmp_path):
    data = write(tmp_path / name, content)
    assert error in ask("train", data, *options, "--out", str(tmp_path / "run"), code=2).stderr


@pytest.mark.parametrize("given", ["letters=true", "tokenizer=char", "text=name"])
def test_settings_of_texts_are_refused_where_recordings_are_read(given, tmp_path):
    told = ask("train", "tones:count=20", "--set", given, "--out", str(tmp_path / "run"), code=2).stderr
    assert f"{given.partition('=')[0]}: got " in told
    assert "but tones:count=20 holds recordings, which have none; leave it out" in told


@pytest.mark.parametrize(
    ("data", "given"),
    [
        ("kindness", "text=review"),
        ("verbs", "label=3"),
        ("stories", "query=asked"),
        ("tastes", "field=a,b,c"),
        ("sine", "target=sold"),
    ],
)
def test_columns_of_what_is_generated_are_refused(data, given, tmp_path):
    told = ask("train", data, "--set", given, "--out", str(tmp_path / "run"), code=2).stderr
    assert f"{given.partition('=')[0]}: got " in told
    assert f"but {data} is generated and has no columns to choose; leave it out" in told


def test_a_run_in_another_scheme_evaluates_the_tags_that_it_was_given(tmp_path):
    data = write(tmp_path / "a.conll", "".join(f"Ann B-PER\nLee I-PER\nsees O\nRome{i} B-LOC\n\n" for i in range(20)))
    made = rc.train(data, model="gru", convert="bioes", width=8, budget="2steps", out=tmp_path / "run")
    assert made.assets["labels"].scheme == "bioes"
    assert "span F1" in ask("evaluate", str(made.folder), data).stdout
    wrong = write(tmp_path / "b.conll", "Ann B-PER\nLee I-PER\n\nRome I-LOC\nLee B-PER\n\n")
    told = ask("evaluate", str(made.folder), wrong, code=2).stderr
    assert "b.conll, line 4, word 1: tag 'I-LOC' after 'the beginning' is not legal in bio" in told


def test_labels_unseen_in_training_and_empty_inputs_are_refused(tmp_path):
    data = write(tmp_path / "films.csv", CSV)
    made = rc.train(
        data, task="classify", model="bag-of-words", text="review", label="mood", budget="2steps", out=tmp_path / "run"
    )
    other = write(tmp_path / "other.csv", "review,mood\nfine,good\ngrand,great\n")
    done = ask("evaluate", str(made.folder), other, code=2)
    assert "other.csv, line 3: label 'great' does not occur in the training part, which has bad, good" in done.stderr
    assert "the text is empty" in ask("predict", str(made.folder), " ", code=2).stderr
    names = write(tmp_path / "names.conll", CONLL)
    tagger = str(rc.train(names, model="gru", width=8, budget="2steps", out=tmp_path / "tagger").folder)
    other = write(tmp_path / "other.conll", "Ann B-PER\n\nOslo B-LOC\n")
    error = "other.conll, line 3, word 1: label 'B-LOC' does not occur in the training part, which has B-PER, I-PER, O"
    assert error in ask("evaluate", tagger, other, code=2).stderr
    unseen = ["train", names, "-m", "gru", "--set", f"valid={other}", "--out", str(tmp_path / "no")]
    assert error in ask(*unseen, code=2).stderr
    assert "predict has no setting 'beam'" in ask("predict", str(made.folder), "fine", "--beam", "3", code=2).stderr
    page = str(tmp_path / "page.html")
    assert "pooling=attention" in ask("predict", str(made.folder), "fine", "--maps", page, code=2).stderr


def test_the_words_that_matter_are_a_page(tmp_path):
    made = rc.train(
        "kindness:count=100", model="gru", budget="2steps", out=tmp_path / "run", width=8, pooling="attention"
    )
    ask("predict", str(made.folder), "the film was good .", "--maps", str(tmp_path / "page.html"))
    assert "film" in (tmp_path / "page.html").read_text(encoding="utf-8")
