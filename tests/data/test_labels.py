"""Labelled data: every format, the parts, the batches, and input that is refused with its file and line."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from recollect.data.error import DataError
from recollect.data.labels.label_batches import LabelBatches, in_order
from recollect.data.labels.label_files import read_texts
from recollect.data.labels.labelled import LabelNames, Vocabulary, load_tags, load_texts
from recollect.data.labels.tag_files import read_tagged
from recollect.data.labels.word_coder import WordCoder
from recollect.data.synthetic.label_generators import LABEL_TASKS, generated_tags, generated_texts

ROWS = [("a fine day", "good"), ("rain, again", "bad"), ("no rain", "good")]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


def texts(data, **columns):
    return [(one.text, one.label) for one in read_texts(data, **columns)]


# ---- texts with labels ---------------------------------------------------------------------------


def test_every_format_gives_the_same_texts(tmp_path):
    table = [("id", "review", "mood"), *((str(i), *row) for i, row in enumerate(ROWS))]
    named = {"text": "review", "label": "mood"}
    quoted = "\n".join(",".join(f'"{cell}"' for cell in row) for row in table)
    objects = "\n".join(json.dumps({"review": text, "mood": label}) for text, label in ROWS)
    assert texts(write(tmp_path / "a.csv", quoted), **named) == ROWS
    assert texts(write(tmp_path / "a.tsv", "\n".join("\t".join(row) for row in table)), **named) == ROWS
    assert texts(write(tmp_path / "a.jsonl", objects), **named) == ROWS
    plain = "\n".join(f"{text}\t{label}" for text, label in ROWS)
    assert texts(write(tmp_path / "b.tsv", plain)) == ROWS  # two columns without names
    assert texts(write(tmp_path / "c.tsv", "\n".join("\t".join(row) for row in table[1:])), text=2, label=3) == ROWS
    first = "\n".join(f"{label} {text}" for text, label in ROWS)
    assert texts(write(tmp_path / "train", first)) == ROWS
    assert texts(write(tmp_path / "fast.txt", "\n".join(f"__label__{line}" for line in first.split("\n")))) == ROWS
    (tmp_path / "zipped.gz").write_bytes(gzip.compress(first.encode()))
    assert texts(str(tmp_path / "zipped.gz")) == ROWS
    lines = write(tmp_path / "texts", "\n".join(text for text, _ in ROWS))
    labels = write(tmp_path / "labels", "\n".join(label for _, label in ROWS))
    assert texts(f"{lines},{labels}") == ROWS


def test_a_folder_for_each_label(tmp_path):
    for number, (text, label) in enumerate(ROWS):
        (tmp_path / label).mkdir(exist_ok=True)
        write(tmp_path / label / f"{number}.txt", text)
    assert sorted(texts(str(tmp_path))) == sorted(ROWS)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        (
            "a.csv",
            "text,mood\nx,y\n",
            r"a\.csv, line 1: no column 'label'; there are: text, mood; name them with --set",
        ),
        ("a.csv", "text,label\nx,y\n,y\n", r"a\.csv, line 3: the text is empty"),
        ("a.csv", "text,label\nx,y\nz, \n", r"a\.csv, line 3: the label is empty"),
        ("a.csv", "text,label\nx\n", r"a\.csv, line 2: 1 cells, but the first line has 2"),
        (
            "a.csv",
            "text,label\nx,y\nwell, good,y\n",
            r"a\.csv, line 3: 3 cells, but the first line has 2; .* with quotes",
        ),
        ("a.csv", 'text,label\n"x,y\n', "not a table that can be read"),
        ("a.jsonl", '{"text": "x"}\n', r"a\.jsonl, line 1: no column 'label'; there are: text"),
        ("a.jsonl", '{"text": 5, "label": "y"}\n', "line 1: field 'text' is 5, expected a string"),
        ("a.jsonl", '{"text": "x", "label": true}\n', "line 1: field 'label' is true, expected a string or a number"),
        ("a.jsonl", '{"text": "x", "label": null}\n', "line 1: field 'label' is null, expected a string or a number"),
        ("a.jsonl", "[]\n", r"line 1: a list, not an object"),
        ("a.jsonl", "{\n", r"line 1: not JSON"),
        ("a.txt", "good \n", r"a\.txt, line 1: the text is empty"),
    ],
)
def test_bad_rows_are_named(name, content, error, tmp_path):
    with pytest.raises(DataError, match=error):
        texts(write(tmp_path / name, content))


def test_a_file_for_each_label_holds_a_text_on_each_line(tmp_path):
    write(tmp_path / "Czech.txt", "Adler\n\nAbl\n")
    write(tmp_path / "Irish.txt", "Adam\n")
    write(tmp_path / "README.md", "where they come from")
    assert texts(str(tmp_path)) == [("Adler", "Czech"), ("Abl", "Czech"), ("Adam", "Irish")]


def test_names_are_read_by_their_letters(tmp_path):
    """Of names each is another word: read as words, all of the test part would be unknown."""
    rows = "".join(f"{label} {label[::-1]}{chr(97 + i)}\n" for label in ("left", "right") for i in range(10))
    assert load_texts(write(tmp_path / "names", rows), Vocabulary()).tokenizer.kind == "char"
    assert load_texts(lines_file(tmp_path / "texts"), Vocabulary()).tokenizer.kind == "word"


def test_a_text_without_labels_is_told_what_a_line_is(tmp_path):
    with pytest.raises(DataError, match=r"names, line 1: the text is empty; a line is a label, a blank and a text"):
        texts(write(tmp_path / "names", "emma\nolivia\n"))


def test_a_folder_where_a_file_is_read_is_called_one(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path}: a folder; labelled data are"):
        list(read_tagged(str(tmp_path)))


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="kindnes: no such file or folder; did you mean kindness"):
        texts("kindnes")
    with pytest.raises(DataError, match="a folder without folders"):
        texts(str(tmp_path))
    one, two = write(tmp_path / "one", "a\nb"), write(tmp_path / "two", "a")
    with pytest.raises(DataError, match=r"one, line 2: no such line in .*two"):
        texts(f"{one},{two}")


# ---- the parts -----------------------------------------------------------------------------------


def lines_file(path, count=30):
    return write(path, "\n".join(f"{'good' if i % 2 else 'bad'} text number {i}" for i in range(count)))


def test_parts_are_drawn_once_and_share_no_text(tmp_path):
    data = lines_file(tmp_path / "data")
    one, other = (load_texts(data, Vocabulary()) for _ in range(2))
    assert one.name == other.name
    assert [len(part) for part in (one.train, one.valid, one.test)] == [24, 3, 3]
    every = [set(part.texts) for part in (one.train, one.valid, one.test)]
    assert len(set.union(*every)) == 30
    assert load_texts(data, Vocabulary(lowercase=True)).name != one.name


@pytest.mark.parametrize("place", range(0, 30, 3))
def test_a_label_that_occurs_once_is_trained_on(place, tmp_path):
    lines = [f"{'good' if i % 2 else 'bad'} text number {i}" for i in range(30)]
    lines[place] = f"mixed text number {place}"
    found = load_texts(write(tmp_path / "data", "\n".join(lines)), Vocabulary())
    assert found.labels.names == ("bad", "good", "mixed")
    assert f"text number {place}" in found.train.texts
    assert [len(part) for part in (found.train, found.valid, found.test)] == [24, 3, 3]
    tags = [f"word{i} {'A' if i % 2 else 'B'}\nlast {'C' if i == place else 'A'}" for i in range(30)]
    assert load_tags(write(tmp_path / "a.conll", "\n\n".join(tags)), Vocabulary()).labels.names == ("A", "B", "C")


def test_labels_that_each_occur_once_cannot_be_held_out(tmp_path):
    data = write(tmp_path / "data", "\n".join(f"label{i} text" for i in range(20)))
    with pytest.raises(DataError, match="got 20 labels in 20 examples, none of which can be held out; give more"):
        load_texts(data, Vocabulary())


def test_parts_of_nothing_but_repeated_texts_are_told_of(tmp_path, capsys):
    data = write(tmp_path / "a.csv", "text,label\n" + "good,x\nbad,y\n" * 20)
    load_texts(data, Vocabulary())
    assert "test: every text drawn for it also occurs in the training part" in capsys.readouterr().err


def test_given_parts_stay_as_they_are(tmp_path, capsys):
    data, valid = lines_file(tmp_path / "data"), lines_file(tmp_path / "valid", 6)
    found = load_texts(data, Vocabulary(), valid=valid)
    assert len(found.valid) == 6
    assert "texts also occur in the training part" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("valid", "error"),
    [
        ("great text", r"valid, line 1: label 'great' does not occur in the training part, which has bad, good"),
        ("", "valid: no examples in it"),
    ],
)
def test_a_part_that_cannot_be_used(valid, error, tmp_path):
    with pytest.raises(DataError, match=error):
        load_texts(lines_file(tmp_path / "data"), Vocabulary(), valid=write(tmp_path / "valid", valid))


def test_one_label_only_or_too_few(tmp_path):
    with pytest.raises(DataError, match="every label is 'good'; expected at least two"):
        load_texts(write(tmp_path / "one", "\n".join(f"good {i}" for i in range(20))), Vocabulary())
    with pytest.raises(DataError, match="got 3 examples, expected 10 or more"):
        load_texts(lines_file(tmp_path / "few", 3), Vocabulary())


def test_batches_hold_every_example_once_and_resume(tmp_path):
    part = load_texts("kindness:count=200", Vocabulary()).train
    batches = LabelBatches(part, 16, by_step=False, seed=3)
    epoch = -(-len(part) // 16)
    source = iter(batches)
    first = [next(source) for _ in range(epoch)]
    assert sum(batch.count for batch in first) == batches.predicted == len(part)
    for _ in range(5):
        next(source)
    state = json.loads(json.dumps(batches.state(), default=int))
    expected = [next(source).x for _ in range(epoch)]
    again = LabelBatches(part, 16, by_step=False, seed=9)
    again.load_state(state)
    source = iter(again)
    assert all((next(source).x == x).all() for x in expected)
    numbers = np.concatenate([numbers for numbers, _ in in_order(part, 7, by_step=False)])
    assert sorted(numbers) == list(range(len(part)))


def test_the_longest_texts_are_read_in_smaller_batches(monkeypatch):
    part = load_texts("kindness:count=60", Vocabulary()).train
    longest = max(map(len, part.ids))
    monkeypatch.setattr("recollect.data.labels.label_batches.STEPS", 3 * longest)
    batches = list(in_order(part, 16, by_step=False))
    assert len(batches[0][0]) == 3
    assert sorted(np.concatenate([numbers for numbers, _ in batches])) == list(range(len(part)))


# ---- words with tags -----------------------------------------------------------------------------

SENTENCE = (("Ann", "sees", "New", "York"), ("B-PER", "O", "B-LOC", "I-LOC"))


def tagged(data, **columns):
    return [(one.words, one.tags) for one in read_tagged(data, **columns)]


def test_every_format_of_tags_gives_the_same(tmp_path):
    rows = list(zip(*SENTENCE, strict=True))
    conll = "-DOCSTART- O\n\n" + "\n".join(f"{word} x {tag}" for word, tag in rows) + "\n\n\nBo\tx\tO\n"
    assert tagged(write(tmp_path / "a.conll", conll)) == [SENTENCE, (("Bo",), ("O",))]
    assert tagged(write(tmp_path / "c.conll", "\n".join(f"{tag}\t{word}" for word, tag in rows)), text=2, label=1) == [
        SENTENCE
    ]
    universal = "# text = Ann sees New York\n1-2\tAnn sees\t" + "\t".join("_" * 8) + "\n"
    for i, (word, tag) in enumerate(rows, 1):
        universal += "\t".join([str(i), word, "_", tag, "X", *"_" * 5]) + "\n"
    universal += "4.1\tghost\t" + "\t".join("_" * 8) + "\n\n"
    assert tagged(write(tmp_path / "a.conllu", universal)) == [SENTENCE]
    assert tagged(str(tmp_path / "a.conllu"), label="xpos")[0][1] == ("X",) * 4
    objects = json.dumps({"words": SENTENCE[0], "tags": SENTENCE[1]})
    assert tagged(write(tmp_path / "a.jsonl", objects)) == [SENTENCE]
    assert tagged(write(tmp_path / "n.jsonl", '{"words": ["in", 1984], "tags": ["X", 2]}')) == [
        (("in", "1984"), ("X", "2"))
    ]
    both = [write(tmp_path / name, " ".join(side)) for name, side in zip(("seq.in", "seq.out"), SENTENCE, strict=True)]
    assert tagged(",".join(both)) == [SENTENCE]


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.conll", "word\n", r"a\.conll, line 1: 1 cells, expected a word and its tag"),
        ("a.conll", "a DT O\nb NN B-X\nc VB\n", r"a\.conll, line 3: 2 cells, but the first line has 3"),
        ("a.conllu", "1\tword\tADJ\n", r"a\.conllu, line 1: 3 cells, expected the 10 of CoNLL-U"),
        ("a.jsonl", '{"words": ["a"], "tags": []}', r"a\.jsonl, line 1: got 1 words and 0 tags"),
        ("a.jsonl", '{"words": "a", "tags": []}', "field 'words' is a str, not a list"),
        (
            "a.jsonl",
            '{"words": ["a", null], "tags": ["X", "Y"]}',
            "line 1: item 2 of 'words' is null, expected a string",
        ),
        (
            "a.jsonl",
            '{"words": ["a", "b"], "tags": [true, "Y"]}',
            "line 1: item 1 of 'tags' is true, expected a string",
        ),
        ("a.jsonl", '{"words": ["a"]}', "no column 'tags'; there are: words"),
    ],
)
def test_bad_tags_are_named(name, content, error, tmp_path):
    with pytest.raises(DataError, match=error):
        tagged(write(tmp_path / name, content))


def test_columns_and_lengths_that_do_not_fit(tmp_path):
    both = [write(tmp_path / name, text) for name, text in (("in", "a b"), ("out", "X"))]
    with pytest.raises(DataError, match=r"in, line 1: got 2 words and 1 tags"):
        tagged(",".join(both))
    conll = write(tmp_path / "a.conll", "a X\n")
    with pytest.raises(DataError, match="no column '3'; there are: 1, 2"):
        tagged(conll, label=3)
    with pytest.raises(DataError, match="no column 'pos'; there are: id, form"):
        tagged(write(tmp_path / "a.conllu", ""), label="pos")


def span_file(path, tags="B-PER I-PER O"):
    return write(path, "\n\n".join("\n".join(f"w{i} {tag}" for tag in tags.split()) for i in range(12)) + "\n")


def test_schemes_are_found_checked_and_converted(tmp_path):
    data = span_file(tmp_path / "a.conll")
    assert load_tags(data, Vocabulary()).labels == LabelNames(("B-PER", "I-PER", "O"), "bio")
    found = load_tags(data, Vocabulary(), convert="bioes")
    assert found.labels == LabelNames(("B-PER", "E-PER", "O"), "bioes")
    assert load_tags("verbs:count=50", Vocabulary()).labels.scheme is None
    with pytest.raises(DataError, match=r"b\.conll, line 1, word 2: tag 'I-PER' after 'O' is not legal in bio"):
        load_tags(span_file(tmp_path / "b.conll", "O I-PER"), Vocabulary(), scheme="bio")


@pytest.mark.parametrize(("scheme", "legal"), [("bioes", "B-X I-X E-X O S-Y"), ("bmes", "B-X M-X E-X O S-Y")])
def test_one_illegal_sequence_is_named_in_the_scheme_of_the_others(scheme, legal, tmp_path):
    path = tmp_path / "a.conll"
    rows = [legal] * 12 + ["B-X O"]
    path.write_text("\n\n".join("\n".join(f"w{i} {tag}" for tag in row.split()) for i, row in enumerate(rows)) + "\n")
    with pytest.raises(DataError, match=rf"line 73, word 1: tag 'B-X' after 'the beginning' is not legal in {scheme}"):
        load_tags(str(path), Vocabulary())


def test_words_without_tags_make_no_label_of_a_span(tmp_path):
    rows = "\n\n".join(f"Ann{i} B-PER\nsees _\nBo I-PER\n. O" for i in range(20))
    found = load_tags(write(tmp_path / "a.conll", rows), Vocabulary(), scheme="any", convert="bioes")
    assert found.labels.names == ("O", "S-PER")
    assert all((one == -1).tolist() == [False, True, False, False] for one in found.train.targets)


def test_tags_that_no_scheme_allows_are_refused_unless_asked_for(tmp_path):
    data = span_file(tmp_path / "a.conll", "O I-PER O B-PER I-LOC")
    with pytest.raises(DataError, match=r"a\.conll, line 1, word 2: tag 'I-PER' after 'O' .* --set scheme=any"):
        load_tags(data, Vocabulary())
    found = load_tags(data, Vocabulary(), scheme="any")
    assert found.labels.scheme == "bio"
    assert load_tags(data, Vocabulary(), scheme="any", convert="bioes").labels.names == ("O", "S-LOC", "S-PER")
    with pytest.raises(DataError, match=r"b\.conll, line 1, word 2: tag 'VERB' is not one of a span"):
        load_tags(span_file(tmp_path / "b.conll", "B-PER VERB"), Vocabulary(), convert="bio")


# ---- words as ids --------------------------------------------------------------------------------


def test_words_and_letters_are_coded_saved_and_loaded(tmp_path):
    lines = ["The cat sat.", "the cat"]
    coder = WordCoder.learn("space", lambda: lines, least=2, lowercase=True, spelled=True)
    assert coder.vocab_size == 3  # the, cat, unknown
    ids = coder.encode("The dog")
    assert ids.shape == (2, 21)
    assert ids[1, 0] == coder.unknown == 2
    assert (ids[0, 1:4] != coder.encode("the")[0, 1:4]).any()  # letters keep their case
    coder.save(tmp_path / "tokenizer.json")
    again = WordCoder.load(tmp_path / "tokenizer.json")
    assert (again.encode("The dog") == ids).all()
    assert again.words("The dog") == ["The", "dog"]
    words = WordCoder.learn("word", lambda: lines)
    assert words.words("The cat, sat.") == ["The", "cat", ",", "sat", "."]
    assert len(words.encode("The cat, sat.")) == 5
    assert WordCoder.learn("bpe", lambda: lines, vocab_size=300).unknown is None
    with pytest.raises(DataError, match="char, which has no words"):
        WordCoder.learn("char", lambda: lines, spelled=True)


# ---- the built-ins -------------------------------------------------------------------------------


def test_built_ins_are_the_same_everywhere_and_never_repeat():
    for name, task in LABEL_TASKS.items():
        read = generated_tags if task.task == "tag" else generated_texts
        first = list(read(f"{name}:count=300"))
        assert first == list(read(f"{name}:count=300"))
        assert len(set(first)) == 300
    assert next(generated_texts("kindness:chinese=1"))[1] in ("kind", "unkind")


def test_apple_has_one_tag_and_its_evidence_on_one_side():
    for side in (0, 100):
        rows = list(generated_tags(f"apple:right={side},count=200"))
        for words, tags in rows:
            assert [tag for tag in tags if tag != "_"] == [tags[words.index("apple")]]
        lefts = {" ".join(words[: words.index("apple")]): set() for words, _ in rows}
        for words, tags in rows:
            lefts[" ".join(words[: words.index("apple")])].add(tags[words.index("apple")])
        assert all(len(found) == (2 if side else 1) for found in lefts.values())
    shares = [tags[words.index("apple")] == "company" for words, tags in generated_tags("apple:share=70")]
    assert 0.65 < np.mean(shares) < 0.75


def test_kindness_needs_the_negation():
    for text, label in generated_texts("kindness:count=200"):
        words = text.split()
        clause = words[words.index("was") :]
        is_good = any(
            word in ["good", "great", "lovely", "friendly", "clever", "funny", "moving", "warm"] for word in clause
        )
        assert label == ("kind" if is_good != any(word in ("not", "never") for word in clause) else "unkind")
