"""The register of claims: every file of `story/claims/`, read without importing it."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args

from recollect.core.errors import nearest
from recollect.story.claim import BUDGETS, Budget, Claim, Result, Verdict
from recollect.views.bilingual import Bilingual

FOLDER = Path(__file__).parent / "claims"
FIELDS = ("中文", "预期", "规则", "Seed", "Budget", "Expected", "Rule", "Exact", "Alone", "Cites", "Says", "说法")
NEEDED = ("中文", "Seed", "Budget", "Expected", "Rule")
HEAD = re.compile(r"([CE]\d+[a-z]?): (.+)", re.DOTALL)
FIELD = re.compile(rf"^({'|'.join(FIELDS)})[:：]\s*", re.MULTILINE)


class ClaimError(ValueError):
    """A file of `story/claims/` that declares no claim, or an id of none."""


@cache
def claims() -> tuple[Claim, ...]:
    """Return all claims, C before E, in the order of their numbers."""
    found = [read_claim(path) for path in sorted(FOLDER.glob("[ce][0-9]*.py"))]
    names = [claim.id for claim in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ClaimError(f"{twice}: declared by two files of {FOLDER.name}/, expected one")
    return tuple(sorted(found, key=lambda claim: _place(claim.id)))


def _place(name: str) -> tuple[str, int, str]:
    letter, number, suffix = re.fullmatch(r"([CE])(\d+)([a-z]?)", name).groups()  # type: ignore[union-attr]
    return letter, int(number), suffix


def claim_named(name: str) -> Claim:
    """Return a claim by its id, in upper or lower case; raise a `ClaimError` where there is none."""
    wanted = name[:1].upper() + name[1:].lower()
    for claim in claims():
        if claim.id == wanted:
            return claim
    hint = nearest(wanted, [claim.id for claim in claims()])
    raise ClaimError(f"claim: got {name!r}, expected an id such as C31{hint}; list them with: recollect claims --list")


def read_claim(path: Path) -> Claim:
    """Return the claim that a file's docstring declares; raise a `ClaimError` that names what is wrong."""
    source = path.read_text(encoding="utf-8")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ClaimError(f"{path.name}: cannot be read as Python ({error})") from error
    docstring = ast.get_docstring(tree) or ""
    parts = FIELD.split(docstring)
    given = {name: " ".join(value.split()) for name, value in zip(parts[1::2], parts[2::2], strict=True)}
    head = HEAD.fullmatch(parts[0].strip())
    if head is None:
        raise ClaimError(f"{path.name}: its docstring begins with {parts[0][:30]!r}, expected an id as in 'C31: …'")
    name = head[1]
    is_correction = name.startswith("E")
    missing = [field for field in (*NEEDED, *(("Says", "说法") if is_correction else ())) if not given.get(field)]
    if missing:
        raise ClaimError(f"{path.name}: got no {', '.join(missing)} in the docstring")
    budget = given["Budget"]
    if budget not in BUDGETS:
        raise ClaimError(f"{path.name}: Budget: got {budget!r}, expected one of {', '.join(BUDGETS)}")
    cites = _cited(path, given["Cites"]) if "Cites" in given else ()
    has_run = any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body)
    if has_run == (budget == "source" or bool(cites)):
        raise ClaimError(f"{path.name}: expected either a function run(budget), or Cites, or the budget source")
    return Claim(
        id=name,
        module=f"recollect.story.claims.{path.stem}",
        text=Bilingual(" ".join(head[2].split()), given["中文"]),
        seed=given["Seed"],
        budget=budget,
        expected=Bilingual(given["Expected"], given.get("预期", given["Expected"])),
        rule=given["Rule"],
        rule_zh=given.get("规则", ""),
        says=Bilingual(given["Says"], given["说法"]) if is_correction else None,
        exact=_verdict(path, given["Exact"]) if "Exact" in given else None,
        is_alone=given.get("Alone") == "yes",
        cites=cites,
        source_digest=hashlib.sha256(source.encode()).hexdigest()[:16],
    )


def _verdict(path: Path, word: str) -> Verdict:
    for verdict in get_args(Verdict):
        if word == verdict:
            return verdict
    raise ClaimError(f"{path.name}: got the verdict {word!r}, expected one of {', '.join(get_args(Verdict))}")


def _cited(path: Path, words: str) -> tuple[tuple[str, Verdict], ...]:
    pairs = [one.strip().partition(" ") for one in words.split(",")]
    return tuple((name, _verdict(path, verdict)) for name, _, verdict in pairs)


def experiment(claim: Claim) -> Callable[[Budget], Result]:
    """Return the experiment of a claim."""
    run: Callable[[Budget], Result] = import_module(claim.module).run
    return run


def chosen(names: Sequence[str], budgets: Sequence[str]) -> list[Claim]:
    """Return the claims of these ids, or all of these budget classes."""
    if names:
        return [claim_named(name) for name in names]
    return [claim for claim in claims() if claim.budget in budgets]
