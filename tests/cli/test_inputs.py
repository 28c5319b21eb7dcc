"""Data as people have them: what the shell expands, two parallel files, tables of pairs; and the task they are for."""

from __future__ import annotations

import json
import shlex

import pytest

import recollect as rc
from command_line import ask
from recollect.data.names import in_short, join_names, split_names
from recollect.runs.run import Run
from recollect.tasks.register import guess_task

WORDS = ("one", "two", "three", "four", "five")
PAIRS = [(f"{a} {b}", f"{n} {m}") for n, a in enumerate(WORDS, 1) for m, b in enumerate(WORDS[:4], 1)]
BRIEF = ["-m", "cho", "--budget", "1steps", "--set", "width=8", "--set", "hidden=8"]


@pytest.fixture(autouse=True)
def place(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(place, **files):
    for name, text in files.items():
        (place / name.replace("_", ".")).write_text(text, encoding="utf-8")


def parallel(place):
    write(place, source_txt="".join(f"{s}\n" for s, _ in PAIRS), target_txt="".join(f"{t}\n" for _, t in PAIRS))


def tasks_of(*names):
    said: list[str] = []
    return guess_task(join_names(list(names)), said.append), "".join(said)


# ---- several names -----------------------------------------------------------------------------------------


def test_files_that_the_shell_expands_are_read_one_after_the_other(place):
    write(place, a_py="abcab " * 20, b_py="bcabc " * 20, c_py="cabca " * 20)
    (place / "d.png").write_bytes(b"\x89PNG\0\0")
    done = ask("train", "a.py", "b.py", "c.py", "d.png", "b.py", "-m", "markov", "--out", "run")
    assert "left out: d.png: a binary file" in done.stderr
    data = Run("run").dataset()
    text = "".join(data.tokenizer.decode(part) for part in (data.train, data.valid, data.test))
    assert text == "abcab " * 20 + "bcabc " * 20 + "cabca " * 20  # b.py once
    assert len(data.ends["train"]) == 3
    card = (place / "run" / "README.md").read_text(encoding="utf-8")
    assert "recollect train a.py b.py c.py d.png b.py -m markov" in card
    assert "`a.py and 4 more`" in card
    assert json.loads(ask("evaluate", "run", "a.py", "b.py", "--json").stdout)["symbols"] == 240
    assert rc.train(["a.py", place / "b.py"], model="markov", out="other").is_spent


def test_each_of_several_names_must_be_there_and_stand_for_files(place):
    write(place, a_txt="abcab " * 20)
    assert "b.txt: no such file" in ask("train", "a.txt", "b.txt", code=2).stderr
    assert "-: cannot be read together with other DATA" in ask("train", "a.txt", "-", code=2).stderr
    assert "recall: cannot be read together" in ask("train", "a.txt", "recall", code=2).stderr
    refused = ask("train", "a.txt", "a.txt", "--task", "caption", code=2)
    assert "DATA: got 2 names, expected one for the task caption" in refused.stderr
    with pytest.raises(ValueError, match="DATA: got no name"):
        rc.train([])


def test_names_are_kept_one_a_line():
    assert split_names(join_names(["a b.txt", "c"])) == ["a b.txt", "c"]
    assert [in_short(join_names(list(names))) for names in ("a", "abc", "abcd")] == ["a", "a, b, c", "a and 3 more"]
    with pytest.raises(ValueError, match="without line ends"):
        join_names(["a\nb"])


# ---- pairs -------------------------------------------------------------------------------------------------


def test_two_parallel_files_are_pairs(place):
    parallel(place)
    done = ask("train", "source.txt", "target.txt", *BRIEF, "--out", "run")
    assert "source.txt, target.txt: pairs (20 lines each), so the task is translate" in done.stderr
    part = Run("run").dataset().train
    assert [(part.source_line(n), part.target_line(n)) for n in range(3)] == PAIRS[:3]
    assert "BLEU" in ask("evaluate", "run", "source.txt", "target.txt").stdout
    assert "recollect train source.txt target.txt -m cho" in (place / "run/README.md").read_text(encoding="utf-8")
    assert rc.train(["source.txt", "target.txt"], model="cho", budget="1steps", out="r2").task.name == "translate"


def test_two_texts_are_texts_where_it_is_asked_for_or_their_lines_differ(place):
    parallel(place)
    done = ask("train", "source.txt", "target.txt", "-m", "markov", "--task", "language", "--out", "run")
    assert "pairs" not in done.stderr
    again = shlex.split((place / "run/README.md").read_text(encoding="utf-8").partition("recollect train ")[2])
    assert again[again.index("--task") + 1] == "language"
    write(place, target_txt="one line\n")
    assert tasks_of("source.txt", "target.txt") == (
        "language",
        "source.txt, target.txt: 20 and 1 lines, so the task is language; for pairs: --task translate",
    )
    refused = ask("train", "source.txt", "target.txt", "--task", "translate", "--out", "r2", code=2)
    assert "source.txt, line 2: no such line in target.txt" in refused.stderr


@pytest.mark.parametrize(
    ("names", "task"),
    [
        (["train.de", "train.en"], "translate"),  # two endings
        (["train.de,train.en"], "translate"),
        (["a.py", "b.py"], "language"),  # one ending that is not .txt
        (["train.de", "train.en", "a.py"], "language"),
        (["train.de"], "language"),
        (["tabs.txt"], "translate"),
        (["labels.txt"], "language"),  # the second cells repeat
        (["some.txt"], "language"),  # a line without a tab
        (["named.csv"], "translate"),
        (["other.csv"], "language"),
        (["pairs.tsv"], "translate"),
        (["texts.tsv"], "language"),
        (["pairs.jsonl"], "translate"),
        (["reversed"], "translate"),
        (["recall"], "language"),
    ],
)
def test_the_task_that_data_are_for(names, task, place):
    lines = [f"line {n}" for n in range(8)]
    text = "\n".join(lines) + "\n"
    for name in ("train.de", "train.en", "a.py", "b.py"):
        (place / name).write_text(text, encoding="utf-8")
    write(place, tabs_txt="".join(f"{line}\t{line[::-1]}\tCC-BY\n" for line in lines))
    write(place, labels_txt="".join(f"{line}\tgood\n" for line in lines), some_txt=text + "a\tb\n")
    write(place, named_csv="source,target\na,b\n", other_csv="text\na\n")
    write(place, pairs_tsv=(place / "tabs.txt").read_text(), pairs_jsonl='{"source": "a", "target": "b"}\n')
    write(place, texts_tsv="n\ttext\n" + "".join(f"{line}\t{line[::-1]}\n" for line in lines))
    assert tasks_of(*names)[0] == task


def test_a_table_is_told_of_only_by_the_columns_that_it_has(place):
    write(place, a_csv="n,text,label\n1,fine,good\n", b_csv="n,text\n1,fine\n")
    told = "a.csv: the columns text and label, so the task is language; for labels: --task classify"
    assert tasks_of("a.csv") == ("language", told)
    assert tasks_of("b.csv") == ("language", "")


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("pairs.txt", "".join(f"{s}\t{t}\tCC-BY\n" for s, t in PAIRS), []),
        ("pairs.csv", "source,target\n" + "".join(f"{s},{t}\n" for s, t in PAIRS), []),
        ("pairs.csv", "".join(f'"{s}","{t}"\r\n' for s, t in PAIRS), []),
        ("pairs.csv", "id,en,de\n" + "".join(f'7,"{s}",{t}\n' for s, t in PAIRS), ["--set", "field=en,de"]),
        ("pairs.tsv", "de\ten\n" + "".join(f"{t}\t{s}\n" for s, t in PAIRS), ["--set", "field=en,de"]),
    ],
    ids=["tabs in .txt", "named columns", "no names", "chosen columns", "chosen columns of .tsv"],
)
def test_tables_of_pairs(name, text, options, place):
    (place / name).write_bytes(text.encode())
    ask("train", name, "--task", "translate", *BRIEF, *options, "--out", "run")
    part = Run("run").dataset().train
    assert [(part.source_line(n), part.target_line(n)) for n in range(5)] == PAIRS[:5]


def test_tables_that_cannot_be_read_as_pairs_name_the_row_and_the_columns(place):
    write(place, a_csv="id,en,de\n7,a,b\n", b_csv="source,target\na\n", c_csv='source,target\n"a,b\n')
    words = ["--task", "translate", "--out", "run"]
    assert "a.csv, line 1: no column 'source'; there are: id, en, de" in ask("train", "a.csv", *words, code=2).stderr
    assert "b.csv, line 2: 1 cells, expected 2 or more" in ask("train", "b.csv", *words, code=2).stderr
    assert "c.csv, line 2: not a table" in ask("train", "c.csv", *words, code=2).stderr
    write(place, d_csv="english,french\n" + "".join(f"{s},{t}\n" for s, t in PAIRS))
    done = ask("train", "d.csv", *words, *BRIEF)
    assert (
        "d.csv: row 1 (english,french) is read as a pair; if it names the columns: --set field=english" in done.stderr
    )


def test_several_tables_are_read_one_after_the_other(place):
    for number, name in enumerate(("a.tsv", "b.tsv")):
        (place / name).write_text("".join(f"{s} {number}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    ask("train", "a.tsv", "b.tsv", "--task", "translate", *BRIEF, "--out", "run")
    data = Run("run").dataset()
    lines = [f"{s} {number}" for number in range(2) for s, _ in PAIRS]
    held_out = {*data.valid.source_lines, *data.test.source_lines}
    assert data.train.source_lines == [line for line in lines if line not in held_out]


# ---- what a model is asked about ---------------------------------------------------------------------------


@pytest.fixture
def classifier(place):
    rows = "".join(f"{word} day,{label}\n" for word in WORDS for label in ("good", "bad")[: 1 + len(word) % 2])
    (place / "texts.csv").write_text("text,label\n" + rows * 5, encoding="utf-8")
    ask("train", "texts.csv", "--task", "classify", "--budget", "1steps", "--set", "width=8", "--out", "run")


def asked(*words):
    """Return the inputs that predictions are for."""
    return [json.loads(line)["source"] for line in ask("predict", "run", *words, "--json").stdout.split("\n")[:-1]]


def test_inputs_are_lines_of_a_file_or_a_column_of_a_table(classifier, place):
    (place / "lines.txt").write_bytes("one day\r\nno\u2028end\r\n".encode())
    assert asked("lines.txt") == ["one day", "no\u2028end"]
    (place / "table.csv").write_text('n,text\n1,"one\nday"\n2,two\n', encoding="utf-8")
    assert asked("table.csv") == ["one day", "two"]
    write(place, rows_jsonl='{"source": "a b"}\n', other_csv="n,words\n1,a\n", empty_txt="")
    assert asked("rows.jsonl") == ["a b"]
    long = "a very long day " * 40
    assert asked(long.strip()) == [long.strip()]  # longer than a file's name may be
    said = ask("predict", "run", "other.csv", code=2).stderr
    assert "other.csv: no column text or source; there are: n, words; give a file of lines" in said
    assert "empty.txt: no lines; give a file of lines" in ask("predict", "run", "empty.txt", code=2).stderr
    (place / "folder").mkdir()
    assert "folder: a folder; give a file of lines" in ask("predict", "run", "folder", code=2).stderr


def test_a_prompt_that_cannot_be_continued_names_one_that_can(place):
    write(place, text_txt="the cat sat on the mat. " * 40)
    ask("train", "text.txt", "-m", "markov", "--out", "run")
    for prompt, problem in (("", "got no text, expected one to continue"), ("猫", "symbol '猫' at place 0 is not in")):
        said = ask("generate", "run", prompt, code=2).stderr
        assert f"prompt: {problem}" in said
        assert ask(*shlex.split(said.rpartition("Try: recollect ")[2]), "--tokens", "3").stdout
