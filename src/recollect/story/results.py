"""Results of claims on disk: one JSON file each, with the machine and the version of the experiment."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.core.cache import cache_folder
from recollect.core.serialize import write_file
from recollect.core.types import JsonObject
from recollect.story.claim import VERDICTS, Check, Claim, Control, Result, Verdict
from recollect.story.register import claim_named
from recollect.views.bilingual import Bilingual

CHECKOUT = Path(__file__).resolve().parents[3]
BENCHMARKS = CHECKOUT / "benchmarks" / "results"


def results_folder(given: str | Path | None = None) -> Path:
    """Return where results are kept: the given folder, that of the checkout, or the user's cache."""
    if given is not None:
        return Path(given)
    return BENCHMARKS / "claims" if BENCHMARKS.is_dir() else cache_folder(None) / "claims"


def save(claim: Claim, result: Result, seconds: float, folder: Path) -> None:
    """Write a result, with what is needed to judge and repeat it."""
    from recollect.core.machine import record

    commit = os.environ.get("RECOLLECT_COMMIT", "none")
    extra: JsonObject = {"experiment": claim.source_digest, "seconds": round(seconds, 2), "result": result.as_json()}
    rows: list[dict[str, Any]] = [dict(row) for row in result.rows]
    written = record(claim.id, rows, claim.command, commit, **extra)
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(written, indent=1, ensure_ascii=False, allow_nan=True)
    write_file(folder / f"{claim.id}.json", text.encode() + b"\n")


def read(claim: Claim, folder: Path) -> JsonObject | None:
    """Return what is kept of a claim; None where nothing is, or where the file cannot be read."""
    try:
        saved: JsonObject = json.loads((folder / f"{claim.id}.json").read_text(encoding="utf-8"))
        return saved if "result" in saved else None
    except (OSError, ValueError):
        return None


def is_fresh(claim: Claim, folder: Path) -> bool:
    """Return whether the result kept of a claim is that of this version of its experiment."""
    saved = read(claim, folder)
    return saved is not None and saved.get("experiment") == claim.source_digest


def result_of(claim: Claim, folder: Path) -> Result | None:
    """Return the result of a claim, of one that cites another by way of that; None where nothing is measured."""
    if claim.cites:
        return _cited(claim, folder)
    saved = read(claim, folder)
    return None if saved is None else Result.from_json(saved["result"])


def _cited(claim: Claim, folder: Path) -> Result | None:
    """Return that the correction holds where every cited claim has its verdict; the figures are the first's."""
    found = [(name, verdict, result_of(claim_named(name), folder)) for name, verdict in claim.cites]
    known = [(name, verdict, result) for name, verdict, result in found if result is not None]
    if len(known) < len(found):
        return None
    words = Bilingual(
        " ".join(f"{name} {VERDICTS[result.verdict].en}: {result.found.en}" for name, _, result in known),
        "".join(f"{name} {VERDICTS[result.verdict].zh}：{result.found.zh}" for name, _, result in known),
    )
    verdict: Verdict = "holds" if all(result.verdict == wanted for _, wanted, result in known) else "does not hold"
    if verdict != "holds" and any(result.verdict == "not shown" for _, _, result in known):
        verdict = "not shown"
    return replace(known[0][2], verdict=verdict, found=words, condition=None, figures=())


def measured(name: str) -> JsonObject | None:
    """Return benchmarks/results/NAME.json, which is cited and not measured again; None in an installation without."""
    path = BENCHMARKS / f"{name}.json"
    found: JsonObject | None = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found


def not_measured(name: str) -> Result:
    """Return the result of a claim whose benchmark is not there."""
    why = Bilingual(f"benchmarks/results/{name}.json is not here.", f"此处没有 benchmarks/results/{name}.json。")
    nothing = Bilingual("none", "无")
    return Result(
        "not shown", why, float("nan"), (float("nan"),) * 2, Control(nothing, float("nan")), Check(nothing, True)
    )
