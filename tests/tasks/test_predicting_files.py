"""`predict` reads the files that a run is trained on and evaluates: its columns, formats and folders."""

from __future__ import annotations

import json

import pytest

import recollect as rc
from command_line import ask
from recollect.data.error import DataError
from recollect.data.labels.label_files import read_texts
from recollect.data.labels.tag_files import read_tagged
from recollect.data.text.input_lines import lines_of

FILMS = [(f"the {'fine' if i % 2 else 'dull'} film , {i}", "good" if i % 3 else "bad") for i in range(30)]
TAGS = [(f"Ann{i} sees Bo", ("B-PER O B-PER" if i % 2 else "B-LOC O O").split()) for i in range(30)]


def write(place, name, text):
    path = place / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


def csv_of(header, rows):
    return "\n".join([header, *(",".join(f'"{cell}"' for cell in row) for row in rows)]) + "\n"


TEXT_FILES = {
    "films.csv": (
        csv_of("n,review,mood", [(i, *row) for i, row in enumerate(FILMS)]),
        {"text": "review", "label": "mood"},
    ),
    "bare.tsv": ("".join(f"{text}\t{label}\n" for text, label in FILMS), {}),
    "numbered.csv": (csv_of("", [(label, text) for text, label in FILMS]).lstrip(), {"text": 2, "label": 1}),
    "films.jsonl": (
        "".join(json.dumps({"review": text, "label": label}) + "\n" for text, label in FILMS),
        {"text": "review"},
    ),
    "fasttext.txt": ("".join(f"__label__{label} {text}\n" for text, label in FILMS), {}),
    "tabs.txt": ("".join(f"{label}\t{text}\n" for text, label in FILMS), {}),
}


@pytest.mark.parametrize("words", ["./nosuch", "nosuch.TXT", "mydir/", "./no such file", "../a b"])
def test_what_can_only_be_a_path_is_no_line_of_words(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="there is no such file"):
        lines_of(words)
    assert lines_of("either / or, see notes.txt today") == ["either / or, see notes.txt today"]


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_classifier_reads_the_texts_that_it_evaluates(name, tmp_path):
    text, columns = TEXT_FILES[name]
    data = write(tmp_path, name, text)
    run = rc.train(
        data, task="classify", model="bag-of-words", budget="2steps", out=tmp_path / "run", evaluate_every=2, **columns
    )
    found = run.predict(data)
    truth = list(read_texts(data, columns.get("text"), columns.get("label")))
    assert [row.source for row in found] == [one.text for one in truth] == [text for text, _ in FILMS]
    right = [row.targets[0].text == one.label for row, one in zip(found, truth, strict=True)]
    assert sum(right) / len(right) == pytest.approx(run.evaluate(data).value)
    printed = ask("predict", str(run.folder), data, "--nbest", "1").stdout.splitlines()
    assert printed == [f"{row.source}\t{row.targets[0].text}" for row in found]


def test_a_column_of_labels_may_be_missing_and_another_of_texts_is_named(tmp_path):
    data = write(tmp_path, "films.csv", csv_of("review,mood", FILMS))
    run = rc.train(
        data, task="classify", model="majority", budget="1steps", out=tmp_path / "run", text="review", label="mood"
    )
    for name, text in (("a.csv", "review\nfine film\n"), ("a.jsonl", '{"review": "fine film"}\n')):
        assert [row.source for row in run.predict(write(tmp_path, name, text))] == ["fine film"]
    other = write(tmp_path, "other.csv", "opinion,mood\nfine,good\n")
    error = ask("predict", str(run.folder), other, code=2).stderr
    assert "no column review, text or source; there are: opinion, mood" in error
    null = write(tmp_path, "null.jsonl", '{"review": null}\n')
    assert "line 1: field 'review' is null, expected a string" in ask("predict", str(run.folder), null, code=2).stderr


def test_folders_and_two_files_are_read_as_in_training(tmp_path):
    for i, (text, label) in enumerate(FILMS):
        (tmp_path / "films").mkdir(exist_ok=True)
        write(tmp_path / "films" / label, f"{i:02}.txt", text)
    texts = write(tmp_path, "texts.txt", "".join(f"{text}\n" for text, _ in FILMS))
    both = f"{texts},{write(tmp_path, 'labels.txt', ''.join(f'{label}{chr(10)}' for _, label in FILMS))}"
    for number, data in enumerate((str(tmp_path / "films"), both)):
        run = rc.train(data, task="classify", model="majority", budget="1steps", out=tmp_path / f"run{number}")
        assert [row.source for row in run.predict(data)] == [one.text for one in read_texts(data)]


def columns_of(line):
    """Return the sequences with a line for each word."""
    every = [enumerate(zip(sentence.split(), tags, strict=True), 1) for sentence, tags in TAGS]
    return "".join("".join(line.format(i=i, word=w, tag=t) + "\n" for i, (w, t) in one) + "\n" for one in every)


TAG_FILES = {
    "names.conll": (columns_of("{word} x {tag}"), {}),
    "names.txt": (columns_of("{word}\t{tag}"), {}),
    "middle.tsv": (columns_of("x\t{tag}\t{word}"), {"text": 3, "label": 2}),
    "names.conllu": (columns_of("{i}\t{word}\t_\t{tag}" + "\t_" * 6), {}),
    "names.jsonl": (
        "".join(json.dumps({"tokens": sentence.split(), "tags": tags}) + "\n" for sentence, tags in TAGS),
        {"text": "tokens"},
    ),
}


@pytest.mark.parametrize("name", TAG_FILES)
def test_a_tagger_reads_the_words_that_it_evaluates(name, tmp_path):
    text, columns = TAG_FILES[name]
    data = write(tmp_path, name, text)
    run = rc.train(data, task="tag", model="majority", budget="1steps", out=tmp_path / "run", scheme="any", **columns)
    found = run.predict(data)
    assert [row.source for row in found] == [sentence for sentence, _ in TAGS]
    truth = [tag for one in read_tagged(data, columns.get("text"), columns.get("label")) for tag in one.tags]
    tags = [tag for row in found for tag in row.targets[0].text.split()]
    share = sum(one == other for one, other in zip(tags, truth, strict=True)) / len(truth)
    assert share == pytest.approx(run.evaluate(data).rows["tags"]["accuracy"])


def test_words_without_tags_and_lines_of_text_are_tagged(tmp_path):
    data = write(tmp_path, "names.conll", TAG_FILES["names.conll"][0])
    run = rc.train(data, model="majority", budget="1steps", out=tmp_path / "run")
    assert [row.source for row in run.predict(write(tmp_path, "new.conll", "Ann1\nsees\n\nBo\n"))] == [
        "Ann1 sees",
        "Bo",
    ]
    lines = write(tmp_path, "lines.txt", "Ann1 sees Bo\nBo sees Ann1\n")
    assert [row.source for row in run.predict(lines)] == ["Ann1 sees Bo", "Bo sees Ann1"]
    table = write(tmp_path, "table.tsv", "n\ttext\n1\tAnn1 sees\n")
    assert [row.source for row in run.predict(table)] == ["Ann1 sees"]


def test_a_matcher_reads_its_columns(tmp_path):
    rows = [(f"cat {i} sat on mat {i}", f"what sat {i} ?", "cat") for i in range(20)]
    data = write(tmp_path, "pairs.csv", csv_of("story,question,answer", rows))
    run = rc.train(
        data,
        task="match",
        model="gru",
        budget="1steps",
        out=tmp_path / "run",
        width=8,
        text="story",
        query="question",
    )
    assert [row.source for row in run.predict(data)] == [f"{text} | {query}" for text, query, _ in rows]
    asked = write(tmp_path, "asked.csv", "question,story\nwhat ?,a | b\n")
    found = run.predict(asked)[0]
    assert found.source == "a | b\twhat ?"
    assert found.targets == run.predict([("a | b", "what ?")])[0].targets
    no_text = write(tmp_path, "none.csv", "question\nwhat ?\n")
    assert "no column 'story'; there are: question" in ask("predict", str(run.folder), no_text, code=2).stderr


def test_a_matcher_ranks_the_texts_of_each_query(tmp_path):
    rows = [(f"what {i} ?", f"text {i} {j}", str(int(j == 0))) for i in range(20) for j in range(3)]
    data = write(tmp_path, "pairs.tsv", "query\ttext\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    run = rc.train(data, task="match", model="gru", budget="1steps", out=tmp_path / "run", width=8)
    found = run.predict(data)
    assert [row.source for row in found[:2]] == [f"what {i} ? | text {i} 0 | text {i} 1 | text {i} 2" for i in range(2)]
    assert sum(row.targets[0].text.endswith(" 0") for row in found) / 20 == pytest.approx(run.evaluate(data).value)


RATED = [(f"u{i % 7}", f"film, {i % 11}", 1 + i % 5) for i in range(70)]


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("ratings.csv", csv_of("user,item,rating", RATED), {}),
        ("named.csv", csv_of("score,who,what", [(r, u, i) for u, i, r in RATED]), {"field": "who,what,score"}),
        ("u.data", "".join(f"{u}\t{i}\t{r}\t88\n" for u, i, r in RATED), {}),
        ("ratings.dat", "".join(f"{u}::{i}::{r}\n" for u, i, r in RATED), {}),
    ],
)
def test_a_recommender_rates_the_pairs_that_it_evaluates(name, text, columns, tmp_path):
    data = write(tmp_path, name, text)
    run = rc.train(data, task="recommend", model="biases", budget="2steps", out=tmp_path / "run", **columns)
    found = run.predict(data)
    assert [row.source for row in found] == [f"{user},{item}" for user, item, _ in RATED]
    errors = [float(row.targets[0].text) - value for row, (_, _, value) in zip(found, RATED, strict=True)]
    mean = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    assert mean == pytest.approx(run.evaluate(data).rows["ratings"]["rmse"], abs=0.006)  # two digits are printed


def test_a_recommender_reads_users_and_pairs_without_ratings(tmp_path):
    data = write(tmp_path, "ratings.csv", csv_of("user,item,rating", [(u, i.replace(",", ""), r) for u, i, r in RATED]))
    run = rc.train(data, task="recommend", model="biases", budget="1steps", out=tmp_path / "run")
    for name, text in (
        ("pairs.csv", "user,item\nu1,film 3\n"),
        ("pairs.txt", "u1,film 3\n"),
        ("pairs.tsv", "u1\tfilm 3\n"),
    ):
        assert [row.source for row in run.predict(write(tmp_path, name, text))] == ["u1,film 3"], name
    users = run.predict(write(tmp_path, "users.csv", "user\nu1\nu2\n"), nbest=2)
    assert [row.source for row in users] == ["u1", "u2"]
    assert {answer.text for row in users for answer in row.targets} <= set(run.assets["items"].names[1:])
    bad = write(tmp_path, "bad.csv", "user,item\nu1,film 33\n")
    assert (
        "'film 33': an item that the run does not know; did you mean"
        in ask("predict", str(run.folder), bad, code=2).stderr
    )


def test_masked_texts_and_vectors_come_from_the_runs_own_column(tmp_path):
    rows = [(i, f"the cat {i} sat on the mat .") for i in range(60)]
    data = write(tmp_path, "texts.csv", csv_of("n,body", rows))
    own = {"width": 16, "batch_size": 4, "steps": 16, "tokenizer": "word", "field": "body"}
    run = rc.train(data, task="masked", model="bilstm", budget="1steps", out=tmp_path / "run", **own)
    asked = write(tmp_path, "asked.csv", "n,body\n1,the [MASK] sat\n")
    assert len(run.predict(asked)) == 1
    lines = ask("embed", str(run.folder), data, "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == [text for _, text in rows]
