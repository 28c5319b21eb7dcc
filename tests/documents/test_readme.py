"""READMEs, figures and guide: figures are those of the results, both languages agree, and every example runs."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.cli import main
from recollect.runs.config import list_settings
from recollect.tasks.register import HOMES, guess_task

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
FIGURES = ROOT / "docs" / "figures.md", ROOT / "docs" / "figures.zh-CN.md"
SPEED = ROOT / "docs" / "speed.md", ROOT / "docs" / "speed.zh-CN.md"
SCALE = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale.zh-CN.md"
TABLES = (ENGLISH, CHINESE), FIGURES, SPEED, SCALE  # pages with figures
GUIDE = tuple(
    (page.with_name(page.name.replace(".zh-CN", "")), page) for page in sorted((ROOT / "docs/guide").glob("*.zh-CN.md"))
)
SIBLINGS = (*TABLES, *GUIDE)
BOTH = pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=["en", "zh"])
PAGES = pytest.mark.parametrize("path", [ENGLISH, CHINESE, *FIGURES, *SPEED, *SCALE], ids=lambda path: path.name)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHELLS = {"sh", "bash", "shell", "console"}


sys.path.insert(0, str(ROOT / "benchmarks"))
writer = importlib.import_module("readme")


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_blocks(path: Path) -> list[tuple[str, str]]:
    """Return language and content of each."""
    return FENCE.findall(text(path))


def headings(path: Path) -> list[int]:
    """Return each heading's level; a comment in a code block is none."""
    return [len(marks) for marks in re.findall(r"^(#+) ", FENCE.sub("", text(path)), re.MULTILINE)]


def file_map(path: Path) -> list[str]:
    """Return what the table of files names in its first column."""
    return re.findall(r"^\| `([^`]+)` \|", text(path), re.MULTILINE)


@PAGES
def test_figures_are_those_of_the_results(path: Path) -> None:
    assert writer.is_current(path), f"{path.name}: run python benchmarks/readme.py"


@PAGES
def test_a_typed_figure_is_noticed_and_undone(path: Path, tmp_path: Path) -> None:
    for name in writer.blocks_in(text(path)):
        before, begin, after = text(path).partition(f"<!-- {name}:begin -->\n")
        typed = tmp_path / path.name
        typed.write_text(f"{before}{begin}| 99 |\n{after}", encoding="utf-8")
        assert not writer.is_current(typed)
        assert writer.fresh(typed) == text(path)


def test_every_table_stands_in_one_page_of_each_language() -> None:
    for pages in zip(*TABLES, strict=True):
        assert sorted(name for page in pages for name in writer.blocks_in(text(page))) == sorted(writer.BLOCKS)


def test_a_table_without_a_result_says_so_only_where_it_may_be_missing(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(writer, "ROOT", tmp_path)
    optional = [name for name, (file, _) in writer.BLOCKS.items() if file in writer.OPTIONAL]
    assert {writer.BLOCKS[name][0] for name in optional} == set(writer.OPTIONAL)
    for say, words in ((writer.english, ": not measured."), (writer.chinese, "：未测量。")):
        assert all(re.fullmatch(f"[^\\n]+{words}", writer.block_of(name, say)) for name in optional)
    with pytest.raises(SystemExit, match=r"layers\.json is missing"):
        writer.block_of("speed", writer.english)


@pytest.mark.parametrize("say", [writer.english, writer.chinese], ids=["en", "zh"])
def test_a_table_appears_with_its_result(say, monkeypatch, tmp_path: Path) -> None:
    known = writer.load("growth")
    spoken = {"case": "lstm", "times_faster": 2.5}
    spoken |= {who: {"tokens_per_s": 4000.0} for who in ("ours", "theirs")}
    planted = {
        "growth-cuda": known,
        "decoding": known | {"rows": [spoken], "threads": 2},
    }
    monkeypatch.setattr(writer, "ROOT", tmp_path)
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    for file, result in planted.items():
        writer.path_of(file).write_text(json.dumps(result), encoding="utf-8")
    assert "| transformer | " in writer.block_of("growth_cuda", say)
    assert "| 4,000 | 4,000 | 2.50 |" in writer.block_of("decoding", say)


def test_a_missing_marker_is_refused() -> None:
    with pytest.raises(SystemExit, match="speed:begin"):
        writer.fill("<!-- memory:begin -->\n<!-- memory:end -->", "speed", "", "README.md")


def test_both_languages_have_the_same_headings() -> None:
    for english, chinese in SIBLINGS:
        assert headings(english) == headings(chinese)


@pytest.mark.parametrize(("one", "other"), SIBLINGS, ids=lambda path: path.name)
def test_both_languages_have_the_same_code_blocks(one: Path, other: Path) -> None:
    ours, theirs = code_blocks(one), code_blocks(other)
    assert [language for language, _ in ours] == [language for language, _ in theirs]
    for (language, english), (_, chinese) in zip(ours, theirs, strict=True):
        if language in SHELLS:
            assert without_language(english) == without_language(chinese)


def without_language(commands: str) -> str:
    """Let a command ask for the reader's own language."""
    return re.sub(r"--lang \w+", "--lang", commands)


@pytest.mark.parametrize("path", [path for pair in SIBLINGS for path in pair], ids=lambda path: path.name)
def test_links_lead_to_files(path: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text(path)) if "://" not in link]
    assert links
    assert not [link for link in links if not (path.parent / link).exists()]


@BOTH
def test_files_named_exist(path: Path) -> None:
    named = file_map(path)
    assert named
    missing = {name for name in named if not (ROOT / name).exists()}
    assert missing <= {"src/recollect/accel/"}  # the package works without it


def test_both_languages_name_the_same_files() -> None:
    assert file_map(ENGLISH) == file_map(CHINESE)


def python_of(path: Path) -> str:
    """Return the Python blocks of a page as one program; blocks marked py are shown only."""
    return "\n".join(code for language, code in code_blocks(path) if language == "python")


@pytest.mark.slow
@pytest.mark.parametrize("path", [ENGLISH, *(english for english, _ in GUIDE)], ids=lambda path: path.name)
def test_the_python_examples_run(path: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", python_of(path)], check=True, capture_output=True, cwd=tmp_path)


@pytest.mark.parametrize(("english", "chinese"), SIBLINGS, ids=lambda path: path.name)
def test_both_languages_have_the_same_python(english: Path, chinese: Path) -> None:
    """Only comments differ, so that what runs in one runs in the other."""
    assert ast.dump(ast.parse(python_of(english))) == ast.dump(ast.parse(python_of(chinese)))


def test_every_page_of_the_guide_has_both_languages() -> None:
    pages = set((ROOT / "docs/guide").glob("*.md"))
    assert pages == {path for pair in GUIDE for path in pair}
    assert GUIDE


COMMAND = re.compile(r"^(?:.*\| )?recollect (.+)$", re.MULTILINE)
COMMANDS = sorted(
    {
        command
        for pair in SIBLINGS
        for language, code in code_blocks(pair[0])
        if language in SHELLS
        for command in COMMAND.findall(code)
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_name_verbs_and_options_that_exist(command: str) -> None:
    verb, *words = shlex.split(command)
    known = main.command().commands[verb]
    options = {option for parameter in known.params for option in parameter.opts}
    if verb in ("train", "plan"):  # every setting of the task can be typed as a flag
        task = words[words.index("--task") + 1] if "--task" in words else guess_task(words[0])
        options |= {f"--{row['name']}" for row in list_settings(task)} if task in HOMES else set()
    assert not [word for word in words if re.match(r"--?[a-z]", word) and word not in options]


def test_every_folder_is_in_the_map() -> None:
    package = ROOT / "src" / "recollect"
    folders = {f"src/recollect/{p.parent.name}/" for p in package.glob("*/__init__.py")}
    assert folders <= set(file_map(ENGLISH))
