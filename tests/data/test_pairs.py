"""Pairs from files to ids: every format gives the same, nothing leaks, and every refusal names file and line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from recollect.data.error import DataError
from recollect.data.pairs.pair_files import open_pairs
from recollect.data.pairs.pair_rows import part_in_memory
from recollect.data.pairs.pairs import load_pairs, read_part, reopen_pairs
from recollect.data.synthetic.pair_generators import PAIR_TASKS
from recollect.data.text.line_tokenizer import LineTokenizer, with_marks, without_marks

LINES = [(f"Ein Satz, Nummer {i}.", f"A sentence, number {i}.") for i in range(60)]


def write_tsv(path, lines):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in lines), encoding="utf-8")
    return str(path)


def write_sides(folder, lines, stem="train"):
    for number, ending in enumerate(("de", "en")):
        text = "".join(f"{pair[number]}\n" for pair in lines)
        (folder / f"{stem}.{ending}").write_text(text, encoding="utf-8")
    return f"{folder}/{stem}.de,{folder}/{stem}.en"


def lines_of(part):
    return list(zip(part.source_lines, part.target_lines, strict=True))


def load(data, tmp_path, **options):
    return load_pairs(data, cache=tmp_path / "cache", **options)


# ---- formats -------------------------------------------------------------------------------------------


def test_every_format_gives_the_same_pairs(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    sides = write_sides(folder, LINES)
    rows = [{"source": source, "target": target, "de": target, "en": source} for source, target in LINES]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    with gzip.open(tmp_path / "a.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{source}\t{target}\tmore\n" for source, target in LINES))
    for data in (sides, folder, tmp_path / "a.jsonl", tmp_path / "a.tsv.gz"):
        assert list(open_pairs(str(data)).pairs()) == LINES
    turned = [(target, source) for source, target in LINES]
    assert list(open_pairs(str(tmp_path / "a.jsonl"), field="de,en").pairs()) == turned
    assert list(open_pairs(str(folder), field="en,de").pairs()) == turned


def test_sides_have_each_its_encoding_and_compression(tmp_path, capsys):
    (tmp_path / "a.zh").write_bytes("我会说中文。\r\n你好\r\n是\r\n".encode("gb18030"))
    with gzip.open(tmp_path / "a.en.gz", "wt", encoding="utf-8") as file:
        file.write("I speak Chinese.\nhello\nyes\n")
    pairs = load(f"{tmp_path}/a.zh,{tmp_path}/a.en.gz", tmp_path)
    parts = (pairs.train, pairs.valid, pairs.test)
    assert {line for part in parts for line in lines_of(part)} == {
        ("我会说中文。", "I speak Chinese."),
        ("你好", "hello"),
        ("是", "yes"),
    }
    assert capsys.readouterr().err.count("a.zh: not UTF-8; read as GB18030") == 1


def test_a_form_feed_or_a_line_separator_ends_no_line(tmp_path):
    data = write_sides(tmp_path, [("a\u2028b\x0cc", "x\ry"), ("d", "e")])
    assert [target for _, target in open_pairs(data).pairs()] == ["x\ry", "e"]


# ---- refusals ------------------------------------------------------------------------------------------


def test_files_that_do_not_fit_are_refused_with_file_and_line(tmp_path):
    one, other = write_sides(tmp_path, LINES).split(",")
    write_sides(tmp_path, LINES[:-2], "short")
    (tmp_path / "blank.en").write_text("\n \n" * 30, encoding="utf-8")
    (tmp_path / "empty.en").touch()
    with pytest.raises(DataError, match=r"train.de, line 59: no such line in .*short.en, which has 58"):
        load(f"{one},{tmp_path}/short.en", tmp_path)
    with pytest.raises(DataError, match=r"train.en, line 59: no such line in .*short.de, which has 58"):
        load(f"{tmp_path}/short.de,{other}", tmp_path)
    with pytest.raises(DataError, match=r"blank.en: each of the 60 targets is empty; give a file with text"):
        load(f"{one},{tmp_path}/blank.en", tmp_path)
    with pytest.raises(DataError, match=r"train.de, line 1: no such line in .*empty.en, which has 0"):
        load(f"{one},{tmp_path}/empty.en", tmp_path)
    with pytest.raises(DataError, match=r"train.fr: no such file or folder; did you mean train.(en|de)"):
        load(f"{one},{tmp_path}/train.fr", tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.tsv", "a\tb\nno tab here\n", r"a.tsv, line 2: no tab; a line is a source, a tab and a target"),
        ("a.tsv", "\n\n", r"a.tsv: no pair in it"),
        ("a.tsv", "a\tb\nc\td\n", r"a.tsv: got 2 pairs, expected 3 or more"),
        ("a.jsonl", '{"source": "a"}\n', r"a.jsonl, line 1: no field 'target'; there are: source; name two with"),
        ("a.jsonl", '{"source": "a", "target": 3}\n', r"a.jsonl, line 1: field 'target' is a int, not a string"),
        ("a.jsonl", '\n{"source": "a", \n', r"a.jsonl, line 2: not JSON"),
        ("a.jsonl", "[1]\n", r"a.jsonl, line 1: a list, not an object"),
        ("a.jsonl", '{"source": "\\ud83d", "target": "b"}\n', r"a.jsonl, line 1: field 'source' holds half of a char"),
        ("a.txt", "a b\n", r"a.txt: one text cannot hold pairs; give a .tsv, .csv or .jsonl"),
        ("a.tsv", "a\0\tb\n", r"a.tsv: a binary file"),
    ],
)
def test_lines_that_are_no_pairs_are_refused(tmp_path, name, text, says):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        load(str(tmp_path / name), tmp_path)


def test_folders_that_do_not_say_which_two_are_refused(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(DataError, match="folder: got no files, expected two files of one stem"):
        open_pairs(str(folder))
    write_sides(folder, LINES)
    with pytest.raises(DataError, match="no en and fr among the endings; there are: de, en"):
        open_pairs(str(folder), field="en,fr")
    write_sides(folder, LINES, "valid")
    with pytest.raises(DataError, match=r"got train.de, train.en, valid.de, valid.en, expected two .*; name the two: "):
        open_pairs(str(folder))


def test_options_that_make_no_sense_are_refused(tmp_path):
    data = write_tsv(tmp_path / "a.tsv", LINES)
    with pytest.raises(DataError, match="field: got 'text', expected two names; write --set field=source,target"):
        load(data, tmp_path, field="text")
    with pytest.raises(DataError, match="tokenizer: got 'letters', expected one of char, byte, word, bpe"):
        load(data, tmp_path, tokenizer="letters")
    with pytest.raises(DataError, match=r"a.tsv: train: no pair is left .*54 pairs left out, longer than 2 symbols"):
        load(data, tmp_path, tokenizer="word", limit=2)
    with pytest.raises(DataError, match="number: no such file or folder; did you mean numbers"):
        load("number", tmp_path)
    with pytest.raises(DataError, match=r"numbers: no argument 'counts'; did you mean count\?; it takes most"):
        load("numbers:counts=3", tmp_path)


# ---- parts ---------------------------------------------------------------------------------------------


def parts_of(pairs):
    return [lines_of(part) for part in (pairs.train, pairs.valid, pairs.test)]


def test_a_tenth_of_the_sources_is_held_out_from_everywhere(tmp_path):
    by_length = [(f"{'sehr ' * (i // 10)}alt {i}", f"{'very ' * (i // 10)}old {i}") for i in range(400)]
    parts = parts_of(load(write_tsv(tmp_path / "a.tsv", by_length), tmp_path))
    assert [len(part) for part in parts] == [360, 20, 20]
    assert sorted(line for part in parts for line in part) == sorted(by_length)
    places = [[by_length.index(line) for line in part] for part in parts]
    for held_out in places[1:]:
        assert held_out == sorted(held_out)  # in the order of the file
        assert held_out[0] < 100
        assert held_out[-1] >= 300


def test_the_order_of_the_lines_changes_no_part(tmp_path):
    parts = parts_of(load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path))
    turned = parts_of(load(write_tsv(tmp_path / "b.tsv", LINES[::-1]), tmp_path))
    assert [sorted(part) for part in parts] == [sorted(part) for part in turned]
    assert parts != turned


def test_a_source_is_in_one_part_with_all_its_targets(tmp_path, capsys):
    lines = [(source, f"{target} {i}") for i in range(3) for source, target in LINES]
    lines += [(source.upper(), target) for source, target in LINES]
    parts = parts_of(load(write_tsv(tmp_path / "a.tsv", lines), tmp_path))
    assert [len(part) for part in parts] == [4 * 54, 4 * 3, 4 * 3]
    sources = [{source.lower() for source, _ in part} for part in parts]
    assert not sources[0] & sources[1]
    assert not sources[2] & (sources[0] | sources[1])
    assert "came before" not in capsys.readouterr().err


def test_the_test_part_does_not_depend_on_a_given_validation_part(tmp_path):
    data = write_tsv(tmp_path / "a.tsv", LINES)
    own = write_tsv(tmp_path / "own.tsv", [("neu", "new")])
    assert lines_of(load(data, tmp_path, valid=own).test) == lines_of(load(data, tmp_path).test)


def test_pairs_that_came_before_are_not_held_out(tmp_path, capsys):
    data = write_tsv(tmp_path / "a.tsv", LINES)
    kept = lines_of(load(data, tmp_path).test)
    own = write_tsv(tmp_path / "own.tsv", kept[:1])
    capsys.readouterr()
    assert lines_of(load(data, tmp_path, valid=own).test) == kept[1:]
    assert "test: 1 pair left out, came before" in capsys.readouterr().err


def test_given_parts_are_kept_whole_and_what_they_share_is_said(tmp_path, capsys):
    data = write_tsv(tmp_path / "a.tsv", LINES)
    own = write_tsv(tmp_path / "own.tsv", [*LINES[:2], ("neu", "new")])
    pairs = load(data, tmp_path, test=own)
    assert lines_of(pairs.test) == [*LINES[:2], ("neu", "new")]
    assert [len(pairs.train), len(pairs.valid)] == [57, 3]
    assert "test: 2 pairs also in what came before, kept as given" in capsys.readouterr().err
    assert len(load(data, tmp_path, valid=own, test=own).train) == 60


def test_a_held_out_part_of_nothing_new_is_refused(tmp_path):
    data = write_tsv(tmp_path / "a.tsv", LINES)
    with pytest.raises(DataError, match=r"test: no pair is left .*; give pairs of their own with --set test=FILE"):
        load(data, tmp_path, valid=data)


def test_too_few_different_sources_are_refused(tmp_path):
    data = write_tsv(tmp_path / "a.tsv", [("ja", f"yes {i}") for i in range(20)] + [("nein", "no"), ("", "x")])
    with pytest.raises(
        DataError, match=r"a.tsv: got 2 different sources .*, expected 3 or more for train, valid, test"
    ):
        load(data, tmp_path)
    assert len(load(data, tmp_path, valid=data, test=data).train) == 21


def test_empty_and_long_pairs_are_left_out_of_training_alone(tmp_path, capsys):
    lines = [("", "x"), ("y", " "), ("a b c d e", "f"), *LINES]
    pairs = load(write_tsv(tmp_path / "a.tsv", lines), tmp_path, tokenizer="space", limit=5, test=f"{tmp_path}/a.tsv")
    said = capsys.readouterr().err
    assert "train: 2 pairs left out, one side is empty" in said
    assert "longer than" not in said
    assert [len(pairs.train), len(pairs.valid)] == [58, 3]
    assert lines_of(pairs.test) == lines
    assert [len(pairs.test.source(0)), len(pairs.test.target(0)), len(pairs.test.target(1))] == [0, 1, 0]
    own = dict.fromkeys(("valid", "test"), f"{tmp_path}/a.tsv")
    pairs = load(f"{tmp_path}/a.tsv", tmp_path, tokenizer="space", limit=4, **own)
    said = capsys.readouterr().err
    assert "train: 1 pair left out, longer than 4 symbols" in said
    assert "test: 1 pair longer than 4 symbols, kept: only training leaves them out" in said
    assert [len(pairs.train), len(pairs.test)] == [60, 63]


def test_a_part_whose_sources_are_all_empty_can_be_opened(tmp_path):
    tokenizer = LineTokenizer.train("char", ["abc"])
    lines = [(tokenizer.encode(""), "", tokenizer.encode("ab"), "ab")]
    part = part_in_memory(lines, np.dtype(np.uint8))
    assert part.source(0).tolist() == []
    assert part.target(-1).tolist() == [0, 1]
    with pytest.raises(IndexError):
        part.source(1)


def test_the_cache_is_used_and_a_damaged_one_is_built_again(tmp_path, monkeypatch, capsys):
    data = write_tsv(tmp_path / "a.tsv", [("", "x"), *LINES])
    first = load(data, tmp_path)
    expected = np.array(first.train.sources.flat)
    assert isinstance(first.train.sources.flat, np.memmap)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(LineTokenizer, "train", lambda *args: pytest.fail("built again"))
        assert (load(data, tmp_path).train.sources.flat == expected).all()
        assert "1 pair left out, one side is empty" in capsys.readouterr().err
        assert lines_of(reopen_pairs(first.name, tmp_path / "cache").test) == lines_of(first.test)
    (tmp_path / "cache" / first.name / "train.source.ids").write_bytes(b"\0")
    assert reopen_pairs(first.name, tmp_path / "cache") is None
    assert (load(data, tmp_path).train.sources.flat == expected).all()
    other = load(data, tmp_path, lowercase=True)
    assert other.name != first.name


# ---- tokenizers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["char", "word", "space", "byte", "bpe"])
@pytest.mark.parametrize("joint", [True, False])
def test_lines_come_back_from_ids(tmp_path, kind, joint):
    pairs = load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path, tokenizer=kind, joint=joint)
    both = [tokenizer.encode("a b").tolist() for tokenizer in (pairs.source_tokenizer, pairs.target_tokenizer)]
    assert both[0] == both[1] or not joint
    assert (pairs.begin, pairs.end) == (pairs.target_tokenizer.vocab_size, pairs.target_tokenizer.vocab_size + 1)
    assert [pairs.source_tokenizer.decode(pairs.train.source(i)) for i in range(54)] == pairs.train.source_lines
    assert [pairs.target_tokenizer.decode(pairs.train.target(i)) for i in range(54)] == pairs.train.target_lines


@pytest.mark.parametrize("kind", ["char", "word", "space", "byte", "bpe"])
def test_an_empty_line_has_no_symbols(kind):
    tokenizer = LineTokenizer.train(kind, ["a b"])
    assert [tokenizer.encode(line).tolist() for line in ("", " \t")] == [[], []]
    assert tokenizer.decode([]) == ""


def test_separate_tokenizers_know_their_own_side_alone(tmp_path):
    pairs = load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path, tokenizer="word", joint=False)
    assert pairs.source_tokenizer.decode(pairs.source_tokenizer.encode("Satz sentence")) == "Satz <unk>"
    assert pairs.target_tokenizer.decode(pairs.target_tokenizer.encode("Satz sentence")) == "<unk> sentence"


def test_held_out_lines_teach_the_tokenizer_nothing(tmp_path):
    pairs = load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path, tokenizer="word")
    tokenizer = pairs.source_tokenizer
    for part in (pairs.valid, pairs.test):
        for line in part.source_lines:
            number = line.split()[-1].removesuffix(".")
            assert tokenizer.decode(tokenizer.encode(f"Nummer {number}")) == "Nummer <unk>"
    assert tokenizer.unseen == [tokenizer.vocab_size - 1]


def test_small_letters_are_for_ids_alone_and_last(tmp_path):
    pairs = load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path, tokenizer="bpe", lowercase=True)
    first = pairs.train.source_lines[0]
    assert first.startswith("Ein Satz, Nummer ")
    assert pairs.source_tokenizer.decode(pairs.train.source(0)) == first.lower()
    pairs.source_tokenizer.save(tmp_path / "tokenizer.json")
    again = LineTokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode("EIN SATZ").tolist() == pairs.source_tokenizer.encode("ein satz").tolist()
    pairs.source_tokenizer.base.save(tmp_path / "tokenizer.json")
    with pytest.raises(DataError, match=r"tokenizer.json: a tokenizer of texts, expected one of pairs"):
        LineTokenizer.load(tmp_path / "tokenizer.json")


def test_a_word_is_the_same_symbol_at_a_lines_start(tmp_path):
    tokenizer = LineTokenizer.train("bpe", ["two men and two dogs"] * 20)
    ids = tokenizer.encode("two and two").tolist()
    assert ids[0] == ids[-1]
    assert tokenizer.symbols("two and two") == ["two", "and", "two"]
    assert tokenizer.encode("  ").tolist() == []


@given(line=st.text(st.sampled_from("ab1,.'(é中文。￭ "), max_size=20))
def test_words_and_signs_join_to_the_line(line):
    line = " ".join(line.split())
    back = without_marks(with_marks(line))
    assert back.replace(" ", "") == line.replace(" ", "")
    if not set("中文。") & set(line):
        assert back == line


def test_words_and_signs_stand_alone():
    assert with_marks("Don't stop, 我也是。OK") == ["Don", "￭'", "￭t", "stop", "￭,", "我", "也", "是", "。", "OK"]


def test_kinds_are_chosen_by_the_data(tmp_path):
    long = [(f"{'Wort ' * 20}{i}", f"{'word ' * 20}{i}") for i in range(3000)]
    assert load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path).source_tokenizer.kind == "char"
    assert load(write_tsv(tmp_path / "b.tsv", long), tmp_path).source_tokenizer.kind == "bpe"
    for name, task in PAIR_TASKS.items():
        assert load(f"{name}:count=60", tmp_path).source_tokenizer.kind == task.kind


def test_pairs_to_test_on_are_read_without_the_cache(tmp_path):
    pairs = load(write_tsv(tmp_path / "a.tsv", LINES), tmp_path)
    lines = [("", "number 3"), ("Satz \u4e00", "")]
    part = read_part(write_tsv(tmp_path / "b.tsv", lines), pairs.source_tokenizer, pairs.target_tokenizer)
    assert lines_of(part) == lines
    assert part.target(0).tolist() == pairs.target_tokenizer.encode("number 3").tolist()
