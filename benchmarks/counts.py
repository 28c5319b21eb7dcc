"""Counts of the source, as in docs/decisions/0018: lines of code, `Any`, private functions used once, names twice.

    python benchmarks/counts.py            # the counts
    python benchmarks/counts.py --list     # and each private function that is used once

Code lines are those without docstrings, comments and blank lines, in .py, .pyi, .c, .cu and .cuh. `Any` counts every
occurrence as a name, imports left out. A private function (its name begins with one underscore) is used once if its
module calls it once.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "recollect"
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def main() -> int:
    modules = {
        path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py*")) if path.suffix != ".pyc"
    }
    trees = {path: ast.parse(text) for path, text in modules.items()}
    lines = Counter[str]()
    for path, text in modules.items():
        lines[folder(path)] += python_lines(text, trees[path])
    for path in sorted(p for kind in ("*.c", "*.cu", "*.cuh", "*.h") for p in PACKAGE.rglob(kind)):
        lines[folder(path)] += c_lines(path.read_text(encoding="utf-8"))
    once = used_once(trees)
    classes = Counter(n.name for tree in trees.values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef))
    stubs = {n.name for p, t in trees.items() if p.suffix == ".pyi" for n in ast.walk(t) if isinstance(n, ast.ClassDef)}
    print(f"modules and stubs at the top: {sum(path.parent == PACKAGE for path in modules)}")
    print(f"class names defined twice: {sum(n > 1 for name, n in classes.items() if name not in stubs)}")
    print(f"code lines: {sum(lines.values()):,}  ({', '.join(f'{k} {v:,}' for k, v in sorted(lines.items()))})")
    print(f"Any: {sum(any_names(tree) for tree in trees.values())}")
    print(f"private functions used once: {len(once)}")
    for line in once if "--list" in sys.argv[1:] else []:
        print(" ", line)
    return 0


def folder(path: Path) -> str:
    """Return the folder of a module; "top" for those beside the folders."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else "top"


def python_lines(text: str, tree: ast.Module) -> int:
    """Return the number of lines that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and body and is_text(body[0]):
            docstrings |= set(range(body[0].lineno, body[0].end_lineno + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            found |= set(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def c_lines(text: str) -> int:
    """Return the number of lines of C or CUDA that hold code."""
    without = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return sum(bool(line.strip()) for line in without.splitlines())


def any_names(tree: ast.Module) -> int:
    """Return how often `Any` occurs as a name."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


def used_once(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the private functions and methods that their module uses once, each with its file, line and length."""
    found = []
    for path, tree in trees.items():
        nodes = list(ast.walk(tree))
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        uses = Counter(node.id for node in called if isinstance(node, ast.Name))
        uses += Counter(node.attr for node in called if isinstance(node, ast.Attribute))
        for node in nodes:
            if isinstance(node, ast.FunctionDef) and re.match(r"_[^_]", node.name) and uses[node.name] == 1:
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name} ({length} lines)")
    return found


if __name__ == "__main__":
    sys.exit(main())
