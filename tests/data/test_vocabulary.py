"""Vocabularies are fitted to the text and to the size of the model, unless a number is given."""

from __future__ import annotations

import random

import pytest

from recollect.data.pairs.pairs import load_pairs
from recollect.data.text.corpus import load_corpus
from recollect.data.text.tokenizer import Tokenizer
from recollect.data.text.vocabulary import fit_vocabulary
from recollect.runs.config import RunConfig


def zipfian(words: int, types: int) -> str:
    """Return a text of drawn words, in lines of ten, the k-th of which is drawn in proportion to 1/k."""
    draw = random.Random(0)
    drawn = draw.choices([f"w{k}" for k in range(types)], [1 / (k + 1) for k in range(types)], k=words)
    return "".join(" ".join(drawn[i : i + 10]) + "\n" for i in range(0, words, 10))


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text(zipfian(40_000, 30_000), encoding="utf-8")
    return path


@pytest.mark.parametrize(("size", "most"), [("tiny", 512), ("small", 512), ("base", 512)])
def test_a_short_text_has_few_byte_pairs(size, most):
    assert fit_vocabulary("bpe", 20_000, size).size == most


def test_byte_pairs_grow_with_text_and_size():
    sizes = {size: [fit_vocabulary("bpe", n, size).size for n in (10**5, 10**6, 10**8)] for size in ("tiny", "base")}
    assert sizes == {"tiny": [512, 2000, 2000], "base": [512, 2000, 8000]}


def test_words_that_occur_once_are_unknown_so_that_unknown_words_are_learned(book, tmp_path, capsys):
    corpus = load_corpus(str(book), tokenizer="word", cache=tmp_path)
    words = book.read_text(encoding="utf-8").split()
    assert 1000 < corpus.tokenizer.vocab_size < len(set(words)) / 2
    unknown = corpus.tokenizer.vocab_size - 1
    assert 0.05 < (corpus.train == unknown).mean() < 0.5
    said = capsys.readouterr().err
    assert said == (
        f"recollect: vocabulary: {corpus.tokenizer.vocab_size:,} words, fitted to text and size; "
        "another: --set vocab_size=N\n"
    )


def test_a_short_text_keeps_its_rare_words():
    assert len(Tokenizer.train("word", ["one two three\n"], rarest=2).symbols) == 4


def test_a_given_number_is_taken_and_nothing_said(book, tmp_path, capsys):
    for kind in ("word", "space", "bpe"):
        assert load_corpus(str(book), tokenizer=kind, vocab_size=700, cache=tmp_path).tokenizer.vocab_size == 700
    assert capsys.readouterr().err == ""


def test_a_text_with_unknown_words_of_its_own_has_the_number_given():
    assert Tokenizer.train("space", ["a <unk> b c\n"], vocab_size=5).vocab_size == 5
    assert Tokenizer.train("space", ["a b c\n"], vocab_size=5).vocab_size == 5


def test_the_vocabulary_follows_the_size_and_can_be_set():
    assert [RunConfig.make("x", size=size).options.vocab_for for size in ("tiny", "base")] == ["tiny", "base"]
    given = RunConfig.make("x", size="base", vocab_for="tiny", vocab_size=300)
    assert (given.options.vocab_for, given.options.vocab_size) == ("tiny", 300)
    assert "vocab_for" not in RunConfig.make("x", size="base").typed()
    assert "--set vocab_for=tiny" in given.typed()


@pytest.mark.parametrize(("target", "is_joint"), [("le chat {}", True), ("那只猫 {}", False)])
def test_two_scripts_have_two_vocabularies(target, is_joint, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"the cat {n}\t{target.format(n)}\n" for n in range(60)), encoding="utf-8")
    assert load_pairs(str(path), tokenizer="char", cache=tmp_path / "cache").is_joint == is_joint
    assert load_pairs(str(path), tokenizer="char", joint=True, cache=tmp_path / "cache").is_joint
    assert not load_pairs(str(path), tokenizer="char", joint=False, cache=tmp_path / "cache").is_joint
