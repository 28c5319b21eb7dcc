"""The claims: every file declares one, exact ones have the verdict that is demanded, and the documents are current."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from recollect.cli.app import app
from recollect.cli.main import VERBS
from recollect.story.claim import BUDGETS, Budget, Chart, Check, Control, Curve, Result
from recollect.story.figures import NAMES, figure_of
from recollect.story.judging import DETERMINISTIC, identity, interval, looks_ahead, student_quantile
from recollect.story.pages import document, page_of
from recollect.story.reasons import REASONS
from recollect.story.register import ClaimError, claim_named, claims, experiment, read_claim
from recollect.story.results import read, result_of, results_folder, save
from recollect.story.running import run_claims
from recollect.views.axes import axis
from recollect.views.bilingual import Bilingual

ROOT = Path(__file__).resolve().parents[2]
EXACT = [claim for claim in claims() if claim.exact is not None and not claim.cites]
NAME = Bilingual("nothing", "无")
RESULT = Result("holds", Bilingual("1.0.", "1.0。"), 1.0, (0.5, 1.5), Control(NAME, 0.0), Check(NAME, True), rows=[])
DECLARED = '''"""C999: Order carries information.

中文：顺序携带信息。
Seed: 002_c6efc9a4698e0e4d.txt:23
Budget: seconds
Expected: a ratio above 1.5
Rule: holds if the ratio is above 1.5, else does not hold
"""


def run(budget):
    pass
'''


@pytest.mark.parametrize("claim", EXACT, ids=lambda claim: claim.id)
def test_exact_claims_have_the_verdict_that_is_demanded(claim):
    torch.manual_seed(0)
    result = experiment(claim)(Budget()).judged()
    assert result.verdict == claim.exact, result.found.en


def test_the_whole_story_is_registered():
    expected = {f"C{n}" for n in range(1, 92)} | {f"E{n}" for n in range(1, 46)}
    assert {claim.id for claim in claims()} == expected | {"E3b", "E8b", "E8c", "E11b", "E11c"}


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: claim.id)
def test_every_claim_is_declared_in_both_languages(claim):
    assert re.search(r"[一-鿿]", claim.text.zh)
    assert not re.search(r"[一-鿿]", claim.text.en)
    assert re.search(r"[一-鿿]", claim.expected.zh)
    assert re.search(r"00[0-4]_[0-9a-f]{16}\.txt:\d+", claim.seed)
    assert claim.budget in BUDGETS
    assert claim.is_correction == (claim.says is not None)
    assert not any(claim_named(name).cites for name, _ in claim.cites)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("C999: ", "", "expected an id"),
        ("Rule: ", "Rules: ", "got no Rule"),
        ("Budget: seconds", "Budget: hours", "expected one of seconds"),
        ("Budget: seconds", "Budget: source", "expected either a function run"),
        ("def run", "def walk", "expected either a function run"),
        ("C999: ", "E999: ", "got no Says, 说法"),
        ("Budget: seconds", "Budget: seconds\nExact: maybe", "expected one of holds"),
    ],
)
def test_a_file_that_declares_no_claim_is_refused(old, new, problem, tmp_path):
    path = tmp_path / "c999.py"
    path.write_text(DECLARED, encoding="utf-8")
    assert read_claim(path).text.zh == "顺序携带信息。"
    path.write_text(DECLARED.replace(old, new), encoding="utf-8")
    with pytest.raises(ClaimError, match=problem):
        read_claim(path)


def test_an_unknown_id_names_the_nearest():
    assert claim_named("c12").id == "C12"
    with pytest.raises(ClaimError, match="did you mean C1"):
        claim_named("C112")


def test_a_failed_leak_check_voids_the_verdict():
    leak = Check(Bilingual("outputs before a change", "改动之前的输出"), False)
    assert replace(RESULT, leak=leak).judged().verdict == "not shown"
    assert RESULT.judged() is RESULT


def test_an_identity_fails_where_it_is_wrong_or_cannot_fail():
    assert identity({"a": 1e-9}, 1e-6, Control(NAME, 1.0)).verdict == "holds"
    assert identity({"a": 1e-9, "b": 1e-3}, 1e-6, Control(NAME, 1.0)).verdict == "does not hold"
    named = identity({Bilingual("states", "状态"): 1e-9}, 1e-6, Control(NAME, 1.0))
    assert named.found == ("Largest errors: states 1.0e-09.", "最大误差：状态 1.0e-09。")
    assert identity({"a": 1e-9}, 1e-6, Control(NAME, 1e-8)).verdict == "does not hold"
    undefined = identity({"a": 1e-9, "b": math.nan}, 1e-6, Control(NAME, 1.0))
    assert undefined.verdict == "does not hold"
    assert math.isnan(undefined.effect)


def test_intervals_are_students():
    for freedom, expected in ((1, 12.706205), (2, 4.302653), (4, 2.776445), (30, 2.042272)):
        assert student_quantile(0.975, freedom) == pytest.approx(expected, rel=1e-4)
    low, high = interval([1.0, 2.0, 3.0])
    assert (low + high) / 2 == pytest.approx(2)
    assert high - low == pytest.approx(2 * 4.302653 / math.sqrt(3), rel=1e-4)
    assert interval([1.0]) == (-math.inf, math.inf)


def test_a_reader_that_looks_ahead_is_found():
    x = torch.randn(2, 6, 3)
    assert looks_ahead(lambda x: x.flip(1), x, 4)
    assert not looks_ahead(lambda x: x.cumsum(1), x, 4)


def test_results_are_kept_and_read_back(tmp_path):
    chart = Chart(NAME, NAME, NAME, [Curve("rnn", [(1.0, 2.0), (10.0, 3.0)])], log_x=True)
    full = replace(RESULT, verdict="holds if", condition=Bilingual("it is long", "足够长"), chart=chart)
    claim = claim_named("C12")
    save(claim, full, 0.1, tmp_path)
    assert result_of(claim, tmp_path) == full
    assert read(claim, tmp_path)["machine"]
    assert "If it is long. 1.0." in document("en", tmp_path)
    assert "条件：足够长" in document("zh", tmp_path)
    page = page_of(claim, full, "here")
    assert page.count("<svg") == 2
    (tmp_path / "C12.json").write_text("{", encoding="utf-8")
    assert result_of(claim, tmp_path) is None


def test_figures_that_a_rule_judged_are_kept(tmp_path):
    judged = replace(RESULT, figures=((0.5, math.inf), 0.9, True))
    save(claim_named("C12"), judged, 0.1, tmp_path)
    assert result_of(claim_named("C12"), tmp_path).figures == judged.figures


KEPT = {one.id: result_of(one, results_folder()) for one in claims()}
UNDECIDED = {name for name, result in KEPT.items() if result is not None and result.verdict == "not shown"}


def test_what_is_not_shown_has_its_reason_and_is_rare():
    assert set(REASONS) == UNDECIDED
    for name in UNDECIDED:
        assert REASONS[name].en in document("en", results_folder())
        assert REASONS[name].zh in document("zh", results_folder())
    unmeasured = [claim.id for claim in claims() if not claim.is_correction and claim.budget == "source"]
    assert len([*unmeasured, *(name for name in UNDECIDED if name.startswith("C"))]) <= 10


def test_a_correction_holds_where_each_claim_that_it_cites_has_its_verdict(tmp_path):
    correction = claim_named("E36")
    assert correction.cites == (("C71", "holds"), ("C72", "holds if"))
    save(claim_named("C71"), RESULT, 0.1, tmp_path)
    assert result_of(correction, tmp_path) is None
    for verdict, expected in (("holds if", "holds"), ("holds", "does not hold"), ("not shown", "not shown")):
        save(claim_named("C72"), replace(RESULT, verdict=verdict), 0.1, tmp_path)
        assert result_of(correction, tmp_path).verdict == expected
    assert "C71 holds: 1.0. C72 not shown" in result_of(correction, tmp_path).found.en


def test_every_claim_that_is_no_identity_has_a_figure():
    measured = [one for one in claims() if not one.is_correction and one.exact is None and KEPT[one.id] is not None]
    assert [one.id for one in measured if figure_of(one, KEPT[one.id]) is None] == []
    bare = replace(KEPT["C17"], chart=None, interval=(-math.inf, math.inf))
    assert "基线" in figure_of(claim_named("C17"), bare)
    assert figure_of(claim_named("C12"), RESULT) is None


def test_names_of_curves_are_translated():
    same = re.compile(
        r"(rnn|gru|lstm|bert|gpt|transformer|ttt|H200|GRU|witten-bell|kneser-ney|[qk√/·τρ=,\d .-]|tanh|linear|mlp)+"
    )
    drawn = {curve.name for found in KEPT.values() if found and found.chart for curve in found.chart.curves}
    assert {name for name in drawn if name not in NAMES and not same.fullmatch(name)} == set()
    assert NAMES.keys() - drawn == set(), "no curve has this name any more"


@pytest.mark.parametrize("name", ["C17", "C31", "C81", "E36"])
def test_in_chinese_no_label_is_english(name, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("recollect.story.running.is_fresh", lambda claim, folder: True)
    shown = CliRunner().invoke(app, ["claims", name, "--lang", "zh"]).stdout
    labels = (
        "claim ",
        "said ",
        "seed ",
        "expected ",
        "rule ",
        "effect ",
        "baseline",
        "leak check",
        "The page",
        "Undecided",
    )
    assert [label for label in labels if label in shown] == []
    assert "预期" in shown
    assert claim_named(name).rule[:20] not in shown


def test_axes_hold_their_values():
    for values in ([0.0, 1.0], [3.0, 3.0], [-2.5, 17.0], [1e-5, 4e-5]):
        drawn = axis(NAME, values, False)
        assert drawn.low <= min(values) <= max(values) <= drawn.high
        assert drawn.low < drawn.high
        assert 2 <= len(drawn.ticks) <= 10
    drawn = axis(NAME, [3.0, 20_000.0], True)
    assert (drawn.low, drawn.high) == (1.0, 100_000.0)


def test_an_experiment_that_fails_loses_one_claim(tmp_path):
    unknown = replace(claim_named("C12"), id="C999")
    outcomes = run_claims([unknown, claim_named("C12")], Budget(), tmp_path, workers=1)
    assert outcomes[0].problem.startswith("ClaimError")
    assert outcomes[1].result.verdict == "holds"
    again = run_claims([claim_named("C12")], Budget(), tmp_path)
    assert again[0].seconds == 0.0, "a fresh result is not measured again"


class Dying:
    """A device that ends the process that receives it."""

    def __reduce__(self):
        return os._exit, (9,)


@pytest.mark.slow
def test_a_worker_that_dies_is_reported(tmp_path):
    (outcome,) = run_claims([claim_named("C12")], Budget(device=Dying()), tmp_path, workers=1)
    assert outcome.problem == "its process was killed"


def test_the_command_runs_one_claim_and_shows_it(tmp_path, monkeypatch):
    assert VERBS
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save(claim_named("C12"), RESULT, 0.1, tmp_path)
    shown = CliRunner().invoke(app, ["claims", "C12", "--out", str(tmp_path), "--lang", "zh"])
    assert shown.exit_code == 0
    assert "成立" in shown.stdout
    assert (tmp_path / "cache" / "recollect" / "claims" / "C12.html").exists()
    listed = json.loads(CliRunner().invoke(app, ["claims", "--list", "--json", "--out", str(tmp_path)]).stdout)
    assert [row["verdict"] for row in listed if row["id"] == "C12"] == ["holds"]
    assert len(listed) == len(claims())


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["--lang", "fr"], "expected en or zh"), (["--seeds", "0"], "expected at least 1")],
)
def test_bad_input_is_refused(words, problem):
    result = CliRunner().invoke(app, ["claims", *words])
    assert result.exit_code == 2
    assert problem in result.stderr


def test_claims_that_need_a_gpu_are_refused_without_one_and_none_does(monkeypatch):
    none = CliRunner().invoke(app, ["claims", "--gpu", "--json"])
    assert (none.exit_code, none.stdout) == (0, "[]\n")
    assert "no claim is of this class" in none.stderr
    needing = replace(claim_named("C12"), budget="gpu")
    monkeypatch.setattr("recollect.story.register.claims", lambda: (needing,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = CliRunner().invoke(app, ["claims", "--gpu"])
    assert result.exit_code == 2
    assert "finds no GPU" in result.stderr


def test_the_documents_are_those_of_the_results():
    module = runpy.run_path(str(ROOT / "benchmarks" / "claims.py"))
    for name, language in module["PAGES"].items():
        assert module["is_current"](name, language), f"{name}: run python benchmarks/claims.py"


def test_an_identity_needs_no_held_out_data():
    assert DETERMINISTIC.passed
