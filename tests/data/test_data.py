"""From files to ids to batches: nothing is lost, nothing leaks, and every refusal says what to do."""

from __future__ import annotations

import gzip
import json
from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from recollect.data.synthetic.builtin import BUILTINS
from recollect.data.text.batches import Streams, Windows
from recollect.data.text.corpus import load_corpus
from recollect.data.text.source import DataError, read_text
from recollect.data.text.spacing import MOST, SHARE, words_between_spaces
from recollect.data.text.tokenizer import KINDS, Tokenizer, choose_kind

EXACT = [kind for kind in KINDS if kind != "space"]  # white space comes back as one blank there
TEXT = "The clouds are in the sky.\n我会说中文。\n\ttabs, émojis 🙂 and  two spaces \n"


def read(data, **options) -> str:
    return "".join(read_text(str(data), **options))


# ---- text ----------------------------------------------------------------------------------------------


def test_files_folders_globs_and_gzip(tmp_path):
    (tmp_path / "a.txt").write_text("one\n", encoding="utf-8")
    (tmp_path / "b.md").write_text("two\n", encoding="utf-8")
    with gzip.open(tmp_path / "c.txt.gz", "wt", encoding="utf-8") as file:
        file.write("three\n")
    assert read(tmp_path / "a.txt") == "one\n"
    assert read(tmp_path) == "one\ntwo\nthree\n"
    assert read(f"{tmp_path}/*.txt*") == "one\nthree\n"


def test_one_field_of_tables(tmp_path):
    rows = [{"text": "one", "note": "x"}, {"text": "two", "note": "y"}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    (tmp_path / "a.csv").write_text('text,note\n"one, indeed",x\ntwo,y\n', encoding="utf-8")
    (tmp_path / "a.tsv").write_text("text\tnote\none\tx\n", encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == "one\ntwo\n"
    assert read(tmp_path / "a.jsonl", field="note") == "x\ny\n"
    assert read(tmp_path / "a.csv") == "one, indeed\ntwo\n"
    assert read(tmp_path / "a.tsv", field="note") == "x\n"


def test_gb18030_is_read_with_a_notice(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes("我会说中文。\n".encode("gb18030"))
    assert read(tmp_path / "a.txt") == "我会说中文。\n"
    assert "read as GB18030" in capsys.readouterr().err


def test_pieces_join_to_the_text(tmp_path):
    text = "".join(f"line {i}\r\n" for i in range(200_000))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8", newline="")
    pieces = list(read_text(str(tmp_path / "long.txt")))
    assert len(pieces) > 1
    assert "".join(pieces) == text.replace("\r\n", "\n")


@pytest.mark.parametrize("name", BUILTINS)
def test_builtins_are_the_same_every_time(name):
    assert read(name) == read(name)
    assert len(read(name)) > 30_000


def test_tasks_are_right():
    for line in read("reverse").splitlines()[:50]:
        word, _, turned = line.partition("=")
        assert turned == word[::-1]
    for line in read("parity").splitlines()[:50]:
        bits, _, odd = line.partition("=")
        assert int(odd) == bits.count("1") % 2
    for line in read("recall").splitlines()[:50]:
        pairs, _, asked = line.partition(" ?")
        assert asked.replace("=", "") in pairs.split()
    for line in read("needle").splitlines()[:50]:
        assert line[0] == line[-1]


def test_what_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\nnot json\n', encoding="utf-8")
    (tmp_path / "a.csv").write_text("title,body\na,b\n", encoding="utf-8")
    with pytest.raises(DataError, match="binary: a binary file"):
        read(tmp_path / "binary")
    with pytest.raises(DataError, match=r"bad.jsonl, line 2: not JSON"):
        read(tmp_path / "bad.jsonl")
    with pytest.raises(
        DataError, match=r"a.csv, line 1: no field 'text'; there are: title, body; .* --set field=title"
    ):
        read(tmp_path / "a.csv")
    with pytest.raises(DataError, match=r"no such file, folder or built-in; did you mean python-docs\?"):
        read("python-doc")
    with pytest.raises(DataError, match="no such file, folder or built-in; built-ins are: python-docs, copy"):
        read("zzzzzzzz/*.txt")


# ---- tokenizers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EXACT)
def test_text_comes_back(kind, tmp_path):
    tokenizer = Tokenizer.train(kind, [TEXT * 5])
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert ids.max() < tokenizer.vocab_size
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.kind == kind
    assert again.vocab_size == tokenizer.vocab_size
    assert (again.encode(TEXT) == ids).all()


@pytest.mark.parametrize("kind", EXACT)
def test_streams_never_show_half_a_character(kind):
    tokenizer = Tokenizer.train(kind, [TEXT])
    stream = tokenizer.stream()
    pieces = [stream.step(int(i)) for i in tokenizer.encode(TEXT)]
    assert "".join(piece or "" for piece in pieces) == TEXT
    assert not any("\ufffd" in (piece or "") for piece in pieces)


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=40)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_comes_back(kind, text):
    words, share = words_between_spaces(text)
    assume(kind != "word" or share <= SHARE or words <= MOST)  # others are refused
    tokenizer = BASE[kind] if kind in ("byte", "bpe") else Tokenizer.train(kind, [text])
    assert tokenizer.decode(tokenizer.encode(text)) == text


BASE = {kind: Tokenizer.train(kind, [TEXT * 3]) for kind in ("byte", "bpe")}


def test_what_stands_between_white_space(tmp_path):
    tokenizer = Tokenizer.train("space", [" no , it was\t<unk> \r\n\n N of it\n"])
    assert sorted(tokenizer.symbols) == ["\n", ",", "<unk>", "N", "it", "no", "of", "was"]
    assert tokenizer.vocab_size == 8
    tokenizer.save(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    ids = tokenizer.encode("it  was never\n\nso ")
    assert tokenizer.decode(ids) == "it was <unk>\n\n<unk>"
    assert len(ids) == 6
    assert tokenizer.encode("it <unk>", strict=True).tolist() == [ids[0], ids[2]]
    with pytest.raises(DataError, match="symbol 'never' at place 1"):
        tokenizer.encode("it never", strict=True)


def test_white_space_symbols_without_an_unknown_one_have_an_id_more():
    tokenizer = Tokenizer.train("space", ["a b a\n"])
    assert tokenizer.vocab_size == 4
    assert tokenizer.encode("a c")[1] == 3
    assert tokenizer.decode([0, 3]) == "a <unk>"
    assert Tokenizer.train("space", ["a a b b c"], vocab_size=3).symbols == ["a", "b"]


@settings(max_examples=60)
@given(text=st.text("ab \n\t", max_size=30))
def test_white_space_symbols_stream_as_they_decode(text):
    tokenizer = Tokenizer.train("space", [text + "\n"])
    ids = tokenizer.encode(text)
    stream = tokenizer.stream()
    assert "".join(stream.step(int(i)) or "" for i in ids) == tokenizer.decode(ids)
    assert tokenizer.decode(ids).split() == text.split()
    assert tokenizer.decode(ids).count("\n") == text.count("\n")


def test_unknown_symbols_have_an_id_and_are_refused_where_asked():
    tokenizer = Tokenizer.train("char", ["abc"])
    assert tokenizer.encode("axb").tolist() == [0, 3, 1]
    assert tokenizer.decode([0, 3]) == "a\ufffd"
    with pytest.raises(DataError, match="symbol 'x' at place 1 is not in the text that was trained on"):
        tokenizer.encode("axb", strict=True)
    words = Tokenizer.train("word", ["a b c"])
    assert words.decode(words.encode("a x")) == "a<unk>"


def test_kinds_are_chosen_by_the_text():
    assert choose_kind("我会说中文 ok", 10**9) == "char"
    assert choose_kind("I speak English", 10**9) == "bpe"
    assert choose_kind("I speak English", 10**6) == "char"


def test_bad_tokenizers_are_refused(tmp_path):
    with pytest.raises(DataError, match="tokenizer: got 'letters', expected one of char, byte, word, bpe"):
        Tokenizer.train("letters", ["a"])
    (tmp_path / "t.json").write_text('{"format": "other"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"t.json: (damaged|not)"):
        Tokenizer.load(tmp_path / "t.json")


# ---- corpora -------------------------------------------------------------------------------------------


def numbered(tmp_path, count=2000):
    path = tmp_path / "numbered.txt"
    path.write_text("".join(f"line {i:05d}\n" for i in range(count)), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", [None, "byte", "word", "bpe"])
def test_parts_are_contiguous_and_do_not_overlap(tmp_path, kind):
    data = numbered(tmp_path)
    corpus = load_corpus(data, tokenizer=kind, cache=tmp_path / "cache")
    parts = [corpus.tokenizer.decode(part) for part in (corpus.train, corpus.valid, corpus.test)]
    text = "".join(read_text(data))
    if kind != "word":  # words that only the held-out parts have, and those that occur once, are unknown
        assert "".join(parts) == text
        assert not set(parts[1].splitlines()[1:-1]) & set(parts[0].splitlines())
        assert len(parts[0]) == pytest.approx(0.9 * len(text), rel=0.01)
    assert parts[0].count("\n") == pytest.approx(1800, abs=1)
    assert isinstance(corpus.train, np.memmap)


def test_the_cache_is_used_and_a_damaged_one_is_built_again(tmp_path, monkeypatch):
    data, cache = numbered(tmp_path), tmp_path / "cache"
    first = np.array(load_corpus(data, cache=cache).train)
    (folder,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", lambda *args: pytest.fail("built again"))
        assert (load_corpus(data, cache=cache).train == first).all()
    (folder / "train.ids").write_bytes(b"\0\0")
    assert (load_corpus(data, cache=cache).train == first).all()


def test_a_notice_is_given_once_though_the_text_is_read_often(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(("我会说中文。\n" * 30).encode("gb18030"))
    load_corpus(str(tmp_path / "a.txt"), cache=tmp_path / "cache")
    assert capsys.readouterr().err.count("read as GB18030") == 1


def test_too_little_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("one line", encoding="utf-8")
    with pytest.raises(DataError, match=r"empty.txt: got 0 characters, expected at least 60"):
        load_corpus(str(tmp_path / "empty.txt"), cache=tmp_path)
    with pytest.raises(DataError, match=r"short.txt: got 8 characters"):
        load_corpus(str(tmp_path / "short.txt"), cache=tmp_path)


# ---- batches -------------------------------------------------------------------------------------------

IDS = np.arange(1000, dtype=np.uint16)


def take(batches, count):
    source = iter(batches)
    return [next(source) for _ in range(count)]


def test_streams_read_everything_in_order():
    seen = take(Streams(IDS[:997], 4, 30), 9)  # 249 symbols to a row
    assert [batch.is_start.tolist() for batch in seen] == [[True] * 4] + [[False] * 4] * 8
    rows = np.concatenate([batch.x.numpy() for batch in seen], axis=1)
    assert (rows == np.arange(4)[:, None] * 249 + np.arange(249)).all()
    assert all((batch.y == batch.x + 1).all() for batch in seen)
    assert all(batch.valid is None for batch in seen)
    assert take(Streams(IDS[:997], 4, 30), 10)[-1].is_start.all()


def test_windows_are_pieces_of_the_text():
    for batch in take(Windows(IDS, 8, 12), 5):
        assert batch.x.shape == (8, 12)
        assert (batch.y == batch.x + 1).all()
        assert batch.valid is None
        assert batch.is_start.tolist() == [True] * 8
    starts = {int(x) for batch in take(Windows(IDS[:14], 8, 12), 20) for x in batch.x[:, 0]}
    assert starts == {0, 1}


@pytest.mark.parametrize("make", [lambda: Streams(IDS, 4, 30), lambda: Windows(IDS, 4, 30, seed=3)])
def test_a_place_can_be_gone_on_from(make):
    whole = take(make(), 14)
    batches = make()
    take(batches, 5)
    place = json.loads(json.dumps(batches.state()))
    again = make()
    again.load_state(place)
    for a, b in zip(whole[5:], take(again, 9), strict=True):
        assert (a.x == b.x).all()
        assert (a.is_start == b.is_start).all()


def test_too_few_symbols_are_refused():
    with pytest.raises(DataError, match="got 10 symbols, expected more than a window's 10; lower --steps"):
        Windows(IDS[:10], 2, 10)
    with pytest.raises(DataError, match="got 4 symbols, expected more than 8, one for each row; lower --batch"):
        Streams(IDS[:4], 8, 2)


def test_only_what_training_never_showed_is_not_to_be_said():
    assert Tokenizer.train("char", ["ab"]).unseen == [2]
    assert Tokenizer.train("space", ["a b\n"]).unseen == [3]
    assert Tokenizer.train("space", ["a <unk> b\n"]).unseen == []
    assert Tokenizer.train("byte", []).unseen == []
    assert Tokenizer.train("bpe", ["ab\n"]).unseen == []


def test_byte_pairs_word_by_word_are_those_of_the_whole_text():
    text = "the cat  sat\ton a mat.\n\n  It's 我们\u00a0here \n \u3000x \r y\n" * 3
    tokenizer = Tokenizer.train("bpe", [text * 20], 300)
    draw = Random(0)
    for _ in range(300):
        some = "".join(draw.choice(" \t\n\r\u00a0\u3000\x0b\x85a1.'我é") for _ in range(12)) + text
        assert tokenizer.encode(some).tolist() == tokenizer._pairs.encode(some).ids


def test_long_words_are_encoded_and_not_kept():
    """A line without blanks is one word: of a server's prompts all would stay in memory."""
    tokenizer = Tokenizer.train("bpe", ["the cat sat on the mat\n" * 20], 300)
    text = "thecat" * 2000 + " sat on 猫坐在垫子上" + "。" * 100 + "\nthe mat"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("thecat" * 50).tolist() == tokenizer._pairs.encode("thecat" * 50).ids
    assert max(map(len, tokenizer._known_words)) <= 64
