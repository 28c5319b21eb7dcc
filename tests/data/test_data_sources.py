"""Sources: every kind of DATA is found, read in bounded chunks and again, and refused with words where it cannot be."""

from __future__ import annotations

import codecs
import gzip
import io
import json

import pytest

from recollect.data.text.corpus import load_corpus
from recollect.data.text.source import DataError, open_source

CHINESE = "我会说中文。\n第二行。\n"


def read(data, **options):
    with open_source(str(data), **options) as source:
        return [tuple(chunk) for chunk in source.chunks()]


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_every_file_and_every_row_is_a_document(tmp_path):
    write(tmp_path / "b.md", "two\n")
    write(tmp_path / "a.txt", "one")
    write(tmp_path / "c.jsonl", '{"text": "three"}\n\n{"text": ""}\n{"text": "four\\n"}\n')
    write(tmp_path / ".hidden", "no")
    assert read(tmp_path) == [("one", True), ("two\n", True), ("three\n", True), ("four\n", True)]


def test_long_documents_come_in_chunks_and_end_once(tmp_path):
    text = "我 and you\r\n" * 300_000
    chunks = read(write(tmp_path / "long.txt", text))
    assert len(chunks) > 2
    assert "".join(p for p, _ in chunks) == text.replace("\r\n", "\n")
    assert [ends for _, ends in chunks] == [False] * (len(chunks) - 1) + [True]


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.csv", "a.tsv"])
def test_gzip_of_any_format_reads_the_same(tmp_path, name):
    content = {
        "a.txt": "x\ny\n",
        "a.jsonl": '{"text": "x"}\n',
        "a.csv": 'id,text\n1,"x, ""y"""\n',
        "a.tsv": "text\nx\n",
    }
    plain = write(tmp_path / name, content[name])
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress(content[name].encode()))
    assert read(zipped) == read(plain)


def test_tables_with_long_and_broken_cells(tmp_path):
    long = "x" * 300_000
    assert read(write(tmp_path / "long.csv", f"text\n{long}\n")) == [(long + "\n", True)]
    assert read(write(tmp_path / "lines.csv", 'text,n\r\n"a\r\nb",1\r\n')) == [("a\nb\n", True)]
    with pytest.raises(DataError, match=r"short.csv, line 2: 1 cells, but 'text' is cell 2"):
        read(write(tmp_path / "short.csv", "n,text\n1\n"))
    with pytest.raises(DataError, match=r"open.csv, line 2: not a table that can be read"):
        read(write(tmp_path / "open.csv", 'text\n"never closed\n'))


def test_gb18030_is_read_with_one_notice(tmp_path):
    heard = []
    assert read(write(tmp_path / "a.txt", CHINESE, "gb18030"), notify=heard.append) == [(CHINESE, True)]
    (said,) = heard
    assert said.startswith(f"{tmp_path / 'a.txt'}: not UTF-8; read as GB18030; if that is wrong: iconv -f BIG5 -t")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_text_is_read_by_its_mark(encoding, tmp_path):
    text = "日本語 and English, é\n" * 3
    heard = []
    path = write(tmp_path / "a.txt", text.replace("\n", "\r\n"), encoding)
    assert read(path, notify=heard.append) == [(text, True)]
    assert heard == [f"{path}: read as {encoding.upper()}"]
    table = tmp_path / "b.tsv"
    table.write_bytes(codecs.BOM_UTF16_BE + "n\ttext\n1\té\n".encode("utf-16-be"))
    assert read(table) == [("é\n", True)]
    (tmp_path / "c.txt").write_bytes((tmp_path / "a.txt").read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"{encoding.upper()} by its mark, but it breaks near byte \d+; take another"):
        read(tmp_path / "c.txt")


def test_gb18030_that_shows_late_is_read_whole(tmp_path):
    text = "a" * (1 << 20) + "x中" * 1000
    assert "".join(p for p, _ in read(write(tmp_path / "a.txt", text, "gb18030"))) == text


def test_utf8_split_between_blocks_and_its_mark(tmp_path):
    text = "a" * ((1 << 20) - 1) + "中文"
    assert "".join(p for p, _ in read(write(tmp_path / "a.txt", text))) == text
    assert read(write(tmp_path / "b.txt", "a", "utf-8-sig")) == [("a", True)]


def test_standard_input_can_be_read_twice_and_leaves_nothing():
    with open_source("-", stdin=io.BytesIO(gzip.compress(CHINESE.encode()))) as source:
        assert list(source.chunks()) == list(source.chunks()) == [(CHINESE, True)]
        assert source.spool.exists()
    assert not source.spool.exists()


def test_refused_standard_input_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(DataError, match="a binary file"):
        open_source("-", stdin=io.BytesIO(b"\0"))
    assert not list(tmp_path.iterdir())


def test_the_name_of_a_corpus_follows_contents_formats_and_fields(tmp_path):
    row = json.dumps({"text": "a b c d e f", "note": "g h i j k l"}) + "\n"
    first, same = write(tmp_path / "a.jsonl", row * 9), write(tmp_path / "b.jsonl", row * 9)
    plain = write(tmp_path / "a.txt", row * 9)

    def name(data: str, field: str | None = None) -> str:
        return load_corpus(data, field=field, cache=tmp_path / "cache").name

    assert name(first) == name(same)
    assert name(first) != name(plain)
    assert name(first) != name(first, field="note")
    assert name("copy:count=50") != name("copy:count=50,seed=1")


def test_builtins_win_over_files_and_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "copy", "mine")
    heard = []
    assert open_source("copy", notify=heard.append).builtin == "copy"
    assert heard == ["copy is the built-in text; write ./copy for the file or folder of that name"]
    assert read("./copy") == [("mine", True)]


def test_of_many_files_those_that_are_no_text_are_left_out(tmp_path):
    write(tmp_path / "a.txt", "one\n")
    (tmp_path / "b.bin").write_bytes(b"\0\1")
    heard = []
    assert read(tmp_path, notify=heard.append) == [("one\n", True)]
    assert heard == [f"left out: {tmp_path / 'b.bin'}: a binary file (a zero byte at 0); give a text file"]
    write(tmp_path / "c.csv", "n,body\n1,two\n")
    write(tmp_path / "d.jsonl", '{"text": "three"}\n')
    heard.clear()
    assert read(tmp_path, notify=heard.append) == [("one\n", True), ("three\n", True)]
    there = "there are: n, body; choose one, as in --set field=n"
    assert heard[1:] == [f"left out: {tmp_path / 'c.csv'}, line 1: no field 'text'; {there}"]
    (tmp_path / "a.txt").unlink()
    (tmp_path / "d.jsonl").unlink()
    with pytest.raises(DataError, match="none of the 2 files in it is text"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.bin", b"PK\x03\x04\0\0", r"a.bin: a binary file \(a zero byte at 4\); give a text file"),
        (
            "a.txt",
            ("hi" * 9).encode("utf-16-le"),
            r"a.txt: UTF-16LE text without a mark; .*: iconv -f UTF-16LE -t",
        ),
        (
            "a.txt",
            ("hi" * 9).encode("utf-16-be"),
            r"a.txt: UTF-16BE text without a mark; .*: iconv -f UTF-16BE -t",
        ),
        ("a.txt", b"ab\xff\xff", r"neither UTF-8 nor GB18030 text \(UTF-8 breaks near byte 2\); .*: iconv -f LATIN1"),
        ("a.txt.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], r"a.txt.gz: cannot be read \(.*\); check the file"),
        ("a.jsonl", b"[1]\n", r"a.jsonl, line 1: a list, not an object like \{\"text\": …\}"),
        ("a.jsonl", b'{"text": 3}\n', r"a.jsonl, line 1: field 'text' is a int, not a string"),
        (
            "a.jsonl",
            b'\n{"body": "x"}\n',
            r"line 2: no field 'text'; there are: body; .* --set field=body",
        ),
    ],
)
def test_bad_files_are_refused_with_words(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read(tmp_path / name)


def test_names_that_lead_nowhere(tmp_path):
    write(tmp_path / "shakespeare.txt", "x")
    with pytest.raises(DataError, match=r"built-in; did you mean shakespeare.txt\?; built-ins are: python-docs"):
        read(tmp_path / "shakespear.txt")
    with pytest.raises(DataError, match=r"\*.md: no such file, folder or built-in"):
        read(tmp_path / "*.md")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder without files"):
        read(tmp_path / "empty")
