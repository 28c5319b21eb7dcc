"""Text as people have it: scripts without spaces, unknown symbols, Windows line ends; and commands that work."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

import recollect as rc
from command_line import ask
from recollect.core.errors import ContractError
from recollect.data.text.corpus import load_corpus
from recollect.data.text.spacing import words_between_spaces
from recollect.data.text.tokenizer import Tokenizer
from recollect.evaluation.baselines import unigram_loss
from recollect.evaluation.likelihood import loss_by_position, score_carried, score_windows
from recollect.models.language import LanguageConfig, LanguageModel
from recollect.runs.run import Run

CHINESE = "话说天下大势，分久必合，合久必分。周末七国分争，并入于秦。\n" * 30
ENGLISH = "the cat sat on the mat and the dog lay by the door\n" * 40
BRIEF = ["-m", "gru", "--budget", "2steps", "--batch", "2", "--steps", "8", "--set", "width=8"]


@pytest.fixture(autouse=True)
def place(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---- scripts without spaces --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["word", "space"])
def test_chinese_sentences_do_not_become_words(kind, place):
    (place / "novel.txt").write_text(CHINESE, encoding="utf-8")
    done = ask("train", "novel.txt", *BRIEF, "--tokenizer", kind, "--out", "run", code=2)
    assert f"tokenizer: got {kind}, which divides at spaces" in done.stderr
    assert "write --tokenizer char" in done.stderr
    ask("train", "novel.txt", *BRIEF, "--tokenizer", "char", "--out", "run")


def test_text_that_was_divided_before_is_words_in_every_script():
    divided = " ".join(["我们", "今天", "去", "北京", "看", "朋友", "。"]) + "\n"
    assert words_between_spaces(divided * 9)[0] < 1.5
    assert Tokenizer.train("space", [divided * 9]).vocab_size == 9
    thai = "ประเทศไทยมีประชากรประมาณเจ็ดสิบล้านคนและมีเมืองหลวงชื่อกรุงเทพมหานคร\n" * 9
    with pytest.raises(ValueError, match="in a script without them"):
        Tokenizer.train("word", [thai])
    assert Tokenizer.train("word", [ENGLISH + "我们今天去北京\n"]).vocab_size > 9  # a little of it is accepted


def test_pairs_divide_han_characters_and_refuse_sentences_as_words(place):
    lines = "".join(f"{'a' * n} cat\t{'这' * n}只猫坐在垫子上看着我\n" for n in range(1, 30))
    (place / "pairs.tsv").write_text(lines, encoding="utf-8")
    words = ["--task", "translate", "-m", "cho", "--budget", "1steps", "--set", "width=8", "--out", "run"]
    assert "which divides at spaces" in ask("train", "pairs.tsv", *words, "--tokenizer", "space", code=2).stderr
    ask("train", "pairs.tsv", *words, "--tokenizer", "word")


# ---- unknown symbols ---------------------------------------------------------------------------------------


def test_unknown_symbols_are_left_out_of_every_figure():
    model = LanguageModel(LanguageConfig("gru", 6, width=8))
    ids = np.random.default_rng(0).integers(0, 6, 200)
    known = ids[1:] != 5
    for score in (score_carried, score_windows):
        everything, some = score(model, ids, 16), score(model, ids, 16, unknown=5)
        assert (some.tokens, some.unknown) == (known.sum(), (~known).sum())
        assert everything.tokens == some.tokens + some.unknown
        assert some.nats < everything.nats
    single = [score_carried(model, ids[: n + 1], 300).nats for n in range(200)]
    expected = np.diff(single)[known].sum()
    assert score_carried(model, ids, 300, unknown=5).nats == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(loss_by_position(model, ids, 16, unknown=5)).all()
    assert unigram_loss(ids, np.array([0, 5, 5]), 6, 5) == unigram_loss(ids, np.array([0]), 6)


def test_evaluate_says_how_many_symbols_are_unknown(place):
    (place / "text.txt").write_text(ENGLISH, encoding="utf-8")
    (place / "other.txt").write_text("the cat sat on 北京 the mat é\n" * 3, encoding="utf-8")
    ask("train", "text.txt", *BRIEF, "--out", "run")
    done = ask("evaluate", "run", "other.txt", "--json")
    assert "other.txt: 9 of 84 symbols (10.7%) are unknown to the run ('北', '京', 'é')" in done.stderr
    found = json.loads(done.stdout)
    assert found["unknown"] == 9
    assert found["rows"][0]["unknown"] == pytest.approx(9 / 83)
    assert "known symbols" in found["measures"]["loss"]["definition"]
    assert "0.1084" in ask("evaluate", "run", "other.txt").stdout  # in the table
    (place / "none.txt").write_text("北京" * 9, encoding="utf-8")
    assert "none of the 18 symbols is known" in ask("evaluate", "run", "none.txt", code=2).stderr


def test_a_loss_is_shown_with_the_share_of_unknown_words(place):
    (place / "text.txt").write_text(ENGLISH + "a zebra met a yak\n" * 4, encoding="utf-8")
    valid = place / "valid.txt"
    valid.write_text("the cat met the yak\n", encoding="utf-8")
    done = ask("train", "text.txt", *BRIEF, "--tokenizer", "word", "--set", f"valid={valid}", "--out", "run")
    assert "unknown 40.00%" in done.stdout
    assert "(40.00% of the symbols are unknown and left out)" in (place / "run/README.md").read_text(encoding="utf-8")
    corpus = Run("run").dataset()
    assert corpus.unknown["train"] == 0
    assert corpus.unknown["test"] > 0
    assert corpus.unknown_id("test") == corpus.tokenizer.unknown
    assert rc.load("run").evaluate().rows["carried"]["unknown"] > 0.3


def test_the_unknown_word_that_a_text_itself_has_is_a_word_of_it(place):
    (place / "ptb.txt").write_text("the <unk> sat on the <unk> mat\n" * 60, encoding="utf-8")
    corpus = load_corpus("ptb.txt", tokenizer="space")
    assert corpus.unknown_id("test") is None
    assert corpus.tokenizer.count_unknown("a <unk> b", corpus.tokenizer.encode("a <unk> b")) == 2


# ---- line ends ---------------------------------------------------------------------------------------------


def test_windows_line_ends_are_line_ends(place):
    (place / "unix.txt").write_bytes(ENGLISH.encode())
    (place / "windows.txt").write_bytes(ENGLISH.replace("\n", "\r\n").encode())
    assert load_corpus("unix.txt").name == load_corpus("windows.txt").name
    assert "\r" not in load_corpus("windows.txt").tokenizer.symbols


# ---- commands that work ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        (ENGLISH, "char"),
        (ENGLISH, "word"),
        ("- a dash 'and' \"quotes\" $HOME\n" * 60, "char"),
        ("--help me now\n" * 60, "word"),
        (CHINESE, "char"),
        (ENGLISH + "quartz jinx\n" * 12, "word"),  # the held-out parts are unknown
        (ENGLISH + "quartz jinx\n" * 12, "space"),
        (ENGLISH, "bpe"),
    ],
)
def test_the_next_command_works(text, tokenizer, place):
    (place / "my text.txt").write_text(text, encoding="utf-8")
    done = ask("train", "my text.txt", "-m", "markov", "--tokenizer", tokenizer, "--out", "my runs/$first one")
    command = shlex.split(done.stderr.rpartition("Next: ")[2])
    assert command[:2] == ["recollect", "generate"]
    assert ask(*command[1:]).stdout.strip()
    planned = ask("plan", "my text.txt", "-m", "markov", "--tokenizer", tokenizer).stderr.rpartition("Next: ")[2]
    assert shlex.split(planned)[:3] == ["recollect", "train", "my text.txt"]


def test_a_folder_that_begins_with_a_dash_can_be_named(place):
    (place / "text.txt").write_text(ENGLISH, encoding="utf-8")
    run = rc.train("text.txt", model="markov", out="-run")
    assert ask(*shlex.split(run.command("generate", run.prompt()))[1:]).stdout


def test_errors_of_generation_are_contract_errors():
    with pytest.raises(ContractError, match="temperature: got 0, expected more than 0"):
        rc.Settings(temperature=0)
