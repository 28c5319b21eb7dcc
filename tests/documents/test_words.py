"""Sources and documents use the vocabulary of the field: each expression below names what to write instead.

`python tests/documents/test_words.py core data` lists what is left in folders of src/recollect.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "recollect"
PENDING: tuple[str, ...] = ()  # folders of the package whose words are still to be rewritten
DOCUMENTS = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
C_SOURCES = {".c", ".h", ".cu", ".cuh"}
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)  # of a document: not prose
C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


class Rule(NamedTuple):
    """An expression in one sense, what to write instead, a sentence it must catch and one it must leave alone."""

    pattern: str
    instead: str
    caught: str
    free: str


RULES = [
    Rule(r"\bh(?:ang(?:s|ing)?|ung) on\b", "depends on", "the ratio hangs on the host", "the process hangs"),
    Rule(
        r"\b(?:the|a|an|each|every|one|two|three|several|this|first|last|its) walks?\b"
        r"|\bwalks? (?:through|of|in|on|back|forwards?|alone|over|inside|beside|that|is|are|takes?|begins?)\b"
        r"|\bwalked\b",
        "the time loop, the persistent kernel",
        "the kernel walks through time",
        "Walk the fields: tree_map is slower; a random walk",
    ),
    Rule(r"\brooms?\b", "workspace, buffer, capacity", "there is room for 256 steps", "some headroom is left"),
    Rule(r"\bshar(?:e|es|ed|ing) out\b", "divides, allocates", "memory is shared out", "both share the buffer"),
    Rule(
        r"(?<!warp )(?<!warp's )\blanes?\b(?! of (?:a|the|each|one) (?:warp|vector)\b)",
        "stream",
        "products run in other lanes",
        "one lane of a warp issues the copy",
    ),
    Rule(r"(?<!word )(?<!word-)\bpieces?\b", "chunk", "a sequence read in pieces", "split into word pieces"),
    Rule(r"\bpiles?\b", "stack", "a pile of layers", "compile it"),
    Rule(
        r"\bway (?:back|there)\b|\bplain way\b|\bways (?:to c|take)\b",
        "variant, path, backward pass",
        "with the way back it takes 8.6",
        "computed both ways and compared",
    ),
    Rule(r"\bthere and back\b", "interleaved (ABBA)", "contenders go there and back", "it is there, and backward"),
    Rule(r"\btak(?:e|es|ing) turns\b", "interleaved", "contenders take turns", "it takes four turns"),
    Rule(
        r"(?<!matrix )(?<!vector )(?<!dot )(?<!inner )(?<!outer )(?<!scalar )(?<!tensor )(?<!cross )\bproducts\b",
        "matrix products, matmuls; the column is matmul precision",
        "large products are torch's",
        "matrix products and dot products",
    ),
    Rule(r"\bin graphs\b", "in a CUDA graph", "4.7 times as called, 2.5 in graphs", "in a CUDA graph"),
    Rule(
        r"\b(?:says?|said|speaks?|spoken?)(?= (?:[\w.,]+ )?(?:tokens?|ids?|symbols?)\b)|\blet (?:a|the) \w+ speak\b",
        "generate, emit",
        "GPT-2 says 4,700 tokens a second",
        "the config says how many tokens there are",
    ),
    Rule(r"\btrainees?\b", "training state", "a checkpoint of the trainee", "the trained model"),
    Rule(
        r"\b(?:go|goes|going|went) on\b(?! (?:the|a|an|its|one|other|top|to)\b)",
        "resume, continue",
        "go on with: recollect resume RUN",
        "the first loop goes on the caller's stream",
    ),
    Rule(r"\brenew(?:s|ed|ing)?\b|\bbeg[iu]n(?:s|ning)? anew\b", "reset", "rows that begin anew", "a new row begins"),
    Rule(
        r"\b(?:is|are|was|were) taken (?:where|when|if|only|there|instead)\b",
        "is selected",
        "the plain path is taken where rows are few",
        "the mean is taken over rows",
    ),
    Rule(r"\bpays?\b(?! (?:attention|off)\b)", "is faster", "whether it pays is measured", "it pays attention to c"),
    Rule(
        r"\bwhole float\d+\b|\b(?:stays?|sent|keeps?|kept) whole\b",
        "full precision",
        "all is whole float32",
        "a whole word is kept",
    ),
    Rule(
        r"\bnarrow(?:s|er|ed|ly)? (?:precision|floats?|dtypes?|types?|sums?|states?|numbers|formats?)\b"
        r"|\b(?:added up|summed) narrow\b|\bstays? wide\b",
        "reduced precision",
        "sums that are added up narrow",
        "a narrow window of the text",
    ),
    Rule(r"\breckon(?:s|ed|ing)?\b", "compute", "offsets are reckoned once", "offsets are computed once"),
    Rule(
        r"\bseen [^.;]{0,120}?, (?:but )?wanted\b",
        "got …, expected …",
        "rate: seen -1, wanted a number above 0",
        "rows seen so far, and wanted ones",
    ),
    Rule(r"\bin vain\b", "without effect, without success", "tried in vain", "in a vane"),
    Rule(r"\bby (?:itself|themselves)\b", "alone, separately", "each size is compiled by itself", "by its own size"),
    Rule(r"\bplainly\b", "directly, on the plain path", "ragged rows are read plainly", "in plain English"),
    Rule(r"\bthrice\b", "three times", "timed thrice", "timed three times"),
    Rule(r"\bsmall letters\b", "lower case", "models write small letters", "models write lower case"),
    Rule(r"录成图|录成 CUDA 图", "CUDA Graph", "双方皆录成图", "双方都以 CUDA Graph 重放"),
]
COMPILED = [re.compile(rule.pattern, re.IGNORECASE) for rule in RULES]
DOCSTRING = re.compile(r"(?:Give|Gives|Say|Says)\b")


class Prose(NamedTuple):
    """A stretch of prose: where it begins, its words, and whether it is a docstring."""

    line: int
    words: str
    is_docstring: bool = False


def prose_of(path: Path) -> Iterator[Prose]:
    """Yield what a reader reads: comments and strings of sources, paragraphs of documents without their code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in C_SOURCES:
        for comment in C_COMMENT.finditer(text):
            yield Prose(text.count("\n", 0, comment.start()) + 1, comment[0])
    elif path.suffix in (".py", ".pyi"):
        yield from _of_python(text)
    else:
        without = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
        for paragraph in re.finditer(r"(?:.+\n?)+", without):
            yield Prose(without.count("\n", 0, paragraph.start()) + 1, paragraph[0])


def _of_python(text: str) -> Iterator[Prose]:
    wanted = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in wanted:
            yield Prose(token.start[0], token.string)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield Prose(node.body[0].lineno, docstring, is_docstring=True)


def faults_in(path: Path) -> list[str]:
    """Return each wrong word with its line and its replacement."""
    found = []
    for line, words, is_docstring in prose_of(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        if is_docstring:  # its words were read as a string
            if DOCSTRING.match(words):
                found.append(f"{where}: {words[:40]!r}: begin with Return, Compute, Read or Raise")
            continue
        text = re.sub(r"\s*\n\s*(?:#\s*|//\s*|\*\s+|>\s*)?|\s+", " ", words)
        for rule, pattern in zip(RULES, COMPILED, strict=True):
            if rule.instead == "stream" and path.suffix in C_SOURCES:
                continue  # CUDA's own word for a thread of a warp
            for match in pattern.finditer(text):
                around = text[max(match.start() - 30, 0) : match.end() + 30]
                found.append(f"{where}: {match[0]!r} in {around!r}: write {rule.instead}")
    return found


def sources(folder: str) -> list[Path]:
    """Return the files of a folder of the package that hold prose."""
    kinds = {".py", ".pyi", ".j2", *C_SOURCES}
    return sorted(path for path in (PACKAGE / folder).rglob("*") if path.suffix in kinds)


FOLDERS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


@pytest.mark.parametrize("path", sorted(DOCUMENTS), ids=lambda path: str(path.relative_to(ROOT)))
def test_documents(path: Path) -> None:
    assert not faults_in(path), "\n".join(faults_in(path))


def test_sources() -> None:
    paths = [path for folder in FOLDERS if folder not in PENDING for path in sources(folder)]
    found = [fault for path in (*sorted(PACKAGE.glob("*.py*")), *paths) for fault in faults_in(path)]
    assert not found, "\n".join(found)


def test_pending_folders_exist() -> None:
    assert set(PENDING) <= set(FOLDERS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.instead)
def test_planted_word_is_caught_and_plain_english_is_not(rule: Rule) -> None:
    assert re.search(rule.pattern, rule.caught, re.IGNORECASE)
    assert not any(pattern.search(rule.free) for pattern in COMPILED), rule.free


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.py", '"""Give it."""\n\n\ndef f():\n    """Return it."""\n', 1),
        ("a.py", "x = 1  # hangs on y\nhangs_on = f'seen {x}, wanted 2'\n", 2),
        ("a.py", 'thrice = "three times"\n', 0),
        ("a.py", '"""Return what\n    hangs\n    on y."""\n', 1),
        ("a.md", "It hangs\non it.\n\n```sh\nthrice\n```\n\n`thrice` is a name.\n", 1),
        ("a.cu", "int thrice; // a lane, timed thrice\n/* whole\n * float32 */\n", 2),
    ],
)
def test_only_prose_is_read(name: str, text: str, count: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert len(faults_in(tmp_path / name)) == count


if __name__ == "__main__":
    for asked in sys.argv[1:] or FOLDERS:
        for file in sources(asked):
            print(*faults_in(file), sep="\n", end="\n" if faults_in(file) else "")
