"""Corpora: given files, documents' ends, the split's borders, reopening, and chunks that do not show in the ids."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from recollect.core import cache as caching
from recollect.data.error import DataError
from recollect.data.text import corpus as corpora, formats
from recollect.data.text.batches import Streams
from recollect.data.text.corpus import load_corpus, read_corpus, reopen_corpus
from recollect.data.text.formats import Chunk
from recollect.data.text.source import read_text
from recollect.data.text.split import split
from recollect.data.text.tokenizer import KINDS, Tokenizer

PARTS = ("train", "valid", "test")


def write(path, text):
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


def numbered(path, count=2000):
    return write(path, "".join(f"line {i:05d}\n" for i in range(count)))


def shown(corpus):
    return [corpus.tokenizer.decode(getattr(corpus, part)) for part in PARTS]


# ---- given files ---------------------------------------------------------------------------------------


def test_given_files_are_whole_and_all_of_data_is_trained_on(tmp_path):
    data = numbered(tmp_path / "a.txt")
    valid, test = write(tmp_path / "v.txt", "line 7\n" * 9), write(tmp_path / "t.txt", "line 8\nx\n")
    corpus = load_corpus(data, valid=valid, test=test, tokenizer="char", cache=tmp_path / "cache")
    assert shown(corpus) == ["".join(read_text(data)), "line 7\n" * 9, "line 8\n\ufffd\n"]


@pytest.mark.parametrize(("given", "kept"), [("valid", "test"), ("test", "valid")])
def test_the_part_that_is_not_given_is_kept_of_data(tmp_path, given, kept):
    data = numbered(tmp_path / "a.txt")
    other = write(tmp_path / "b.txt", "line 7\n")
    corpus = load_corpus(data, cache=tmp_path / "cache", **{given: other})
    parts = dict(zip(PARTS, shown(corpus), strict=True))
    assert parts[given] == "line 7\n"
    assert parts["train"] + parts[kept] == "".join(read_text(data))
    assert parts["train"].count("\n") == 1900


def test_given_files_belong_to_the_name(tmp_path):
    data, cache = numbered(tmp_path / "a.txt"), tmp_path / "cache"
    texts = [write(tmp_path / f"{i}.txt", f"line {i}\n") for i in range(2)]
    ways = [{}, {"valid": texts[0]}, {"valid": texts[1]}, {"test": texts[0]}, {"valid": texts[0], "test": texts[1]}]
    assert len({load_corpus(data, cache=cache, **way).name for way in ways}) == len(ways)
    assert len(list(cache.iterdir())) == len(ways)


def test_given_files_that_are_no_use_are_refused(tmp_path):
    data, empty = numbered(tmp_path / "a.txt"), write(tmp_path / "e.txt", "")
    cache = tmp_path / "cache"
    with pytest.raises(DataError, match=r"e.txt: got 0 known symbols in the valid part, expected 2 or more"):
        load_corpus(data, valid=empty, cache=cache)
    assert not list(cache.iterdir())
    with pytest.raises(DataError, match="standard input can be one text only"):
        load_corpus("-", valid="-", cache=cache)


# ---- documents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_ends_are_those_of_the_documents(tmp_path, kind):
    rows = [f"row {i} " * (i % 5 + 1) for i in range(400)]
    data = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": row}) + "\n" for row in rows))
    corpus = load_corpus(data, tokenizer=kind, cache=tmp_path / "cache")
    found = []
    for part in PARTS:
        ids, ends = getattr(corpus, part), corpus.ends[part]
        assert ends[-1] == len(ids)
        found += [corpus.tokenizer.decode(d) for d in np.split(ids, ends[:-1])]
    assert len(found) == 400
    if kind in ("char", "byte", "bpe"):
        assert found == [row + "\n" for row in rows]
    read = read_corpus(data, corpus.tokenizer)
    ids, ends = read.test, read.ends["test"]
    assert (ids == np.concatenate([getattr(corpus, part) for part in PARTS])).all()
    assert len(ends) == 400
    assert Streams(corpus.train, 4, 20, corpus.ends["train"]).predicted == len(corpus.train) - len(corpus.ends["train"])


def test_borders_fall_between_documents_or_lines_or_where_they_must(tmp_path):
    (tmp_path / "two").mkdir()
    write(tmp_path / "two" / "a.txt", "abc " * 808)
    write(tmp_path / "two" / "b.txt", "\n".join(["abc " * 4] * 20))
    corpus = load_corpus(str(tmp_path / "two"), tokenizer="byte", cache=tmp_path / "cache")
    assert corpus.ends["train"].tolist() == [3232]  # 90 % would be 3214
    assert shown(corpus)[2].startswith("abc")
    assert shown(corpus)[1].endswith("\n")
    corpus = load_corpus(write(tmp_path / "one.txt", "abcd" * 250), cache=tmp_path / "cache")
    assert [len(getattr(corpus, part)) for part in PARTS] == [900, 50, 50]


def test_white_space_alone_is_no_document(tmp_path):
    rows = ["a b", " ", "c\n"] * 40
    data = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": row}) + "\n" for row in rows))
    tokenizer = Tokenizer.train("space", ["a b c\n"])
    read = read_corpus(data, tokenizer)
    ids, ends = read.test, read.ends["test"]
    assert tokenizer.decode(ids) == "a b\n\nc\n" * 40
    assert ends[:3].tolist() == [3, 4, 6]
    assert read_corpus(write(tmp_path / "blank.txt", "  "), tokenizer).ends["test"].tolist() == []


# ---- chunks --------------------------------------------------------------------------------------------

LINES = "The first line,  with  blanks \r\n\n\n\tthen a longer one that goes on and on; 我会说中文。\nend"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 7, 33])
def test_ids_do_not_show_where_chunks_were_cut(tmp_path, monkeypatch, kind, chunk):
    text = LINES * 4
    data, tokenizer = write(tmp_path / "a.txt", text), Tokenizer.train(kind, [LINES * 3])
    monkeypatch.setattr(formats, "CHUNK", max(chunk, 33) if kind in ("word", "bpe", "space") else chunk)
    assert len(list(read_text(data))) > 3
    assert read_corpus(data, tokenizer).test.tolist() == tokenizer.encode(text.replace("\r\n", "\n")).tolist()


def test_chunks_end_with_lines_else_before_words_else_anywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "CHUNK", 8)
    chunks = list(read_text(write(tmp_path / "a.txt", "ab\ncd\nefg hi  jk  \nlmnop" + "x" * 5)))
    assert chunks == ["ab\ncd\n", "efg hi ", " jk  \n", "lmnop" + "x" * 5]
    assert list(read_text(write(tmp_path / "b.txt", "x" * 20))) == ["x" * 8, "x" * 8, "x" * 4]


# ---- the cache -----------------------------------------------------------------------------------------


def test_a_corpus_is_opened_again_without_its_text(tmp_path):
    cache = tmp_path / "cache"
    data = numbered(tmp_path / "a.txt")
    first = load_corpus(data, cache=cache)
    (tmp_path / "a.txt").unlink()
    again = reopen_corpus(first.name, cache)
    assert again.name == first.name
    assert shown(again) == shown(first)
    assert all((again.ends[part] == first.ends[part]).all() for part in PARTS)
    assert reopen_corpus("another", cache) is None
    (cache / first.name / "test.ends").write_bytes(b"")
    assert reopen_corpus(first.name, cache) is None


def test_standard_input_is_opened_again(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"abc " * 50)))
    corpus = load_corpus("-", cache=tmp_path)
    assert shown(reopen_corpus(corpus.name, tmp_path)) == shown(corpus)


def test_ids_take_the_fewest_bytes(tmp_path):
    data = numbered(tmp_path / "a.txt")
    assert load_corpus(data, tokenizer="byte", cache=tmp_path / "cache").train.dtype == np.uint8
    assert load_corpus(data, tokenizer="word", cache=tmp_path / "cache").train.dtype == np.uint16


def test_a_process_that_was_slower_takes_what_is_there(tmp_path, monkeypatch):
    data, cache = numbered(tmp_path / "a.txt"), tmp_path / "cache"
    other = load_corpus(data, cache=cache)
    looks = iter([False, True])
    for module in (corpora, caching):
        monkeypatch.setattr(module, "is_whole", lambda folder: next(looks))
    monkeypatch.setattr(caching.shutil, "rmtree", lambda path, **options: None)  # it was not there when we began
    assert (load_corpus(data, cache=cache).train == other.train).all()


def test_the_part_that_is_validated_on_stays_small(monkeypatch):
    chunks = [Chunk("x" * 99 + "\n", False)] * 10_000
    monkeypatch.setattr("recollect.data.text.split.LARGEST", 10_000)
    (_, train), (start, stop), (_, end) = split(lambda: iter(chunks), 1_000_000, 2)
    assert (train, start, stop, end) == (940_000, 940_000, 950_000, 1_000_000)
