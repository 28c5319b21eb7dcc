"""Built-ins: the same every time, right, and without an example or a paragraph that comes twice."""

from __future__ import annotations

import re
import sys

import pytest

from recollect.data.error import DataError
from recollect.data.synthetic.builtin import BUILTINS, builtin_documents
from recollect.data.text.source import open_source

TASKS = [name for name in BUILTINS if name != "python-docs"]


@pytest.mark.parametrize("name", TASKS)
def test_examples_differ_and_follow_the_seed(name):
    documents = list(builtin_documents(f"{name}:count=500"))
    assert len(set(documents)) == 500
    assert documents == list(builtin_documents(f"{name}:count=500,seed=0"))
    assert documents != list(builtin_documents(f"{name}:count=500,seed=1"))
    assert all(d.endswith("\n") and d.count("\n") == 1 for d in documents)


def test_the_tasks_are_right():
    for document in builtin_documents("copy:count=50,length=7"):
        before, _, after = document.strip().partition("=")
        assert before == after
        assert len(before) == 7
    for document in builtin_documents("needle:count=50,distance=30"):
        assert re.fullmatch(r"(\d)[a-z]{30}\?\1\n", document)
    for document in builtin_documents("notes:count=50,distance=30"):
        assert re.fullmatch(r"((\d)([A-K])|([A-K])(\d))[a-z]{30}(#(\2|\5)|@(\3|\4))\n", document)
    for document in builtin_documents("recall:count=50,pairs=4"):
        pairs, _, asked = document.strip().partition(" ?")
        assert len({pair[0] for pair in pairs.split()}) == 4
        assert asked.replace("=", "") in pairs.split()


def test_no_long_paragraph_of_the_docs_comes_twice():
    documents = list(builtin_documents("python-docs"))
    paragraphs = [" ".join(p.split()) for d in documents for p in re.split(r"\n[ \t]*\n", d)]
    long = [p for p in paragraphs if len(p) >= 40]
    assert len(long) == len(set(long))
    assert sum(map(len, documents)) > 300_000


def test_a_python_without_its_docs_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(DataError, match=r"lacks pydoc_data.topics .* use a generator instead, as recall"):
        list(builtin_documents("python-docs"))


def test_without_the_docs_a_generator_is_read_and_said_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    heard = []
    with open_source("python-docs", notify=heard.append) as source:
        assert [chunk.text for chunk in source.chunks()] == list(builtin_documents("recall"))
        assert len(list(source.chunks())) == 20_000
    assert heard == ["python-docs: this Python lacks pydoc_data.topics; the generator recall is read instead"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("revers", r"revers: no such built-in; did you mean reverse\?; built-ins are: python-docs"),
        ("copy:lenght=3", r"copy: no argument 'lenght'; did you mean length\?; it takes length, symbols, count, seed"),
        ("copy:length=x", r"copy: length='x' is not an integer; write copy:length=10"),
        ("python-docs:seed=1", "python-docs: no argument 'seed'; it takes no arguments"),
        ("recall:pairs=27", "pairs=27: expected 1 to 26"),
        ("parity:length=0", "length=0: expected 1 or more"),
        ("parity:length=3,count=9", "only 8 different examples were found, expected 9; make them longer"),
    ],
)
def test_bad_names_and_arguments(data, words):
    with pytest.raises(DataError, match=words):
        list(builtin_documents(data))
