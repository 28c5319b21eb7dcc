"""Translating as a user types it: train, resume, predict, evaluate, and what is refused."""

from __future__ import annotations

import json

import pytest

from command_line import ask, run
from going_on import check_goes_on_bit_equal
from recollect.generation.settings import Search
from recollect.generation.translation import attention_map, translate
from recollect.models.translation import FAMILIES
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.tasks.translate import tokenizers_of


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def small(family: str = "bahdanau", **options) -> RunConfig:
    settings = {"max_steps": 10, "batch_size": 8, "steps": 32, "evaluate_every": 5} | options
    return RunConfig.make("reversed:count=400", family, task="translate", **settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_and_translates(family, tmp_path):
    rows, folder = [], Run(tmp_path / "run")
    assert begin(small(family), folder, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert losses[-1] < losses[0]
    said = folder.predict(["abc", "", "xyzxyz"], beam=2, nbest=2)
    assert [row.source for row in said] == ["abc", "", "xyzxyz"]
    assert all(len(row.targets) == 2 for row in said)
    assert Run(tmp_path / "run").predict(["abc", "", "xyzxyz"], beam=2, nbest=2) == said


@pytest.mark.slow
def test_the_whole_way(tmp_path):
    pairs, out = tmp_path / "pairs.tsv", str(tmp_path / "run")
    words = {"one": "1", "two": "2", "three": "3", "four": "4", "five": "5"}
    lines = [f"{a} {b}\t{words[a]} {words[b]}" for a in words for b in words] * 20
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    test = tmp_path / "test.tsv"
    test.write_text("one two\t1 2\nfive\t5\n", encoding="utf-8")
    options = ["--task", "translate", "-m", "luong", "--tokenizer", "space", "--budget", "60steps", "--batch", "8"]
    trained = run("train", str(pairs), *options, "--set", f"test={test}", "--set", f"valid={test}", "--out", out)
    assert f"recollect predict {out}" in trained.stderr
    assert run("predict", out, "two three").stdout == "2 3\n"
    assert ask("predict", out, "-", given="four four\none five\n").stdout == "4 4\n1 5\n"
    best = json.loads(ask("predict", out, "two two", "--nbest", "3", "--json").stdout)
    assert [len(best["targets"]), best["targets"][0]["text"]] == [3, "2 2"]
    result = json.loads(ask("evaluate", out, "--json").stdout)
    assert [row["read"] for row in result["rows"]] == ["targets given", "greedy", "beam 5"]
    assert result["rows"][2]["exact"] >= 0.5
    assert "13a" in result["signatures"][0]
    assert "BLEU" in ask("evaluate", out, str(pairs)).stdout
    assert "A translator" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_a_translator_goes_on_bit_equal(tmp_path):
    check_goes_on_bit_equal(small("transformer", dropout=0.1), tmp_path)


def test_a_line_is_translated_alike_alone_and_among_others(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("bahdanau"), folder, lambda row: None)
    model, sides = folder.model.double(), tokenizers_of(folder.assets)
    lines = folder.dataset().test.source_lines[:20]
    search = Search(width=3, nbest=3, tokens=20)
    together = translate(model, sides, lines, search)
    alone = [translate(model, sides, [line], search)[0] for line in lines]
    assert [[one.text for one in found] for found in together] == [[one.text for one in found] for found in alone]


@pytest.mark.parametrize("family", ["bahdanau", "luong", "transformer"])
def test_attention_maps_are_weights(family, tmp_path):
    folder = Run(tmp_path / "run")
    begin(small(family, max_steps=1), folder, lambda row: None)
    weights = attention_map(folder.model, tokenizers_of(folder.assets), "abcd", "dc")
    assert weights.shape == (3, 4)
    assert weights.sum(1) == pytest.approx(1.0)
    page = tmp_path / "maps.html"
    ask("predict", str(folder.folder), "abcd", "--maps", str(page))
    assert "abcd → " in page.read_text(encoding="utf-8")


def test_what_looks_at_nothing_has_no_maps(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("cho", max_steps=1), folder, lambda row: None)
    assert "try bahdanau" in ask("predict", str(folder.folder), "ab", "--maps", str(tmp_path / "m.html"), code=2).stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train", "reversed", "--task", "translate", "-m", "lstm"], "expected one of sutskever, cho"),
        (["train", "reversed", "--task", "translation"], "did you mean translate"),
        (["train", "a.de,b.en", "--task", "translate", "-m", "luong"], "a.de"),
    ],
)
def test_bad_words_are_refused(words, error, tmp_path):
    assert error in ask(*words, "--out", str(tmp_path / "run"), code=2).stderr


@pytest.mark.parametrize("joint", ["true", "false"])
def test_a_source_in_an_unknown_script_is_named_by_its_line(joint, tmp_path):
    pairs, out = tmp_path / "pairs.tsv", str(tmp_path / "run")
    lines = [f"{'a' * n} cat\t{'这' * n}只猫" for n in range(1, 40)]
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = [
        "--task",
        "translate",
        "-m",
        "cho",
        "--tokenizer",
        "bpe",
        "--budget",
        "2steps",
        "--set",
        f"joint={joint}",
    ]
    ask("train", str(pairs), *options, "--out", out)
    given = tmp_path / "lines.txt"
    given.write_text("a cat\n42 ☺\n\nмой друг\n", encoding="utf-8")
    error = ask("predict", out, str(given), code=2).stderr
    assert "line 4: got CYRILLIC letters, expected LATIN" in error
    assert "line 1: got CJK" in ask("predict", out, "你好吗 a", code=2).stderr
    assert ask("predict", out, "a cat из 42").stdout.count("\n") == 1  # mostly known


def test_summaries_are_pairs_too(tmp_path):
    out = str(tmp_path / "run")
    ask("train", "reversed:count=200", "--task", "summarise", "-m", "luong", "--budget", "2steps", "--out", out)
    assert ask("predict", out, "abc").stdout.count("\n") == 1
    assert "rouge_l" in ask("evaluate", out, "--json").stdout
    assert "A summariser" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_each_kind_of_run_names_the_verb_of_the_other(tmp_path):
    spoken, written = str(tmp_path / "spoken"), str(tmp_path / "written")
    begin(RunConfig.make("recall:count=2000", "gru", max_steps=1), Run(spoken), lambda row: None)
    begin(small("cho", max_steps=1), Run(written), lambda row: None)
    assert f"recollect generate {spoken}" in ask("predict", spoken, "a", code=2).stderr
    refused = ask("generate", written, "a", code=2)
    assert f"recollect predict {written}" in refused.stderr
    assert refused.stdout == ""  # not even the prompt


@pytest.mark.parametrize("name", ["nosuch.txt", "some/folder/lines"])
def test_a_file_that_is_not_there_is_not_translated_by_its_name(name, tmp_path):
    begin(small("cho", max_steps=1), Run(tmp_path / "run"), lambda row: None)
    assert f"{name}: there is no such file" in ask("predict", str(tmp_path / "run"), name, code=2).stderr
