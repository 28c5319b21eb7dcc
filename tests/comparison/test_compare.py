"""Comparisons as users make them: real trainings on small data; in one process, but for the slow tests."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import recollect as rc
from browser import check_page, needs_browser
from recollect.cli.main import app
from recollect.comparison import cell
from recollect.comparison.compare import cells_of, file_of, locked, open_data
from recollect.comparison.contexts import growth_of, read_contexts
from recollect.comparison.digests import changed, digests_of
from recollect.comparison.entrants import Entrant
from recollect.comparison.outcome import assemble
from recollect.comparison.plan import Cell, Plan, keep_plan, parse_compared, read_plan, short_name
from recollect.comparison.processes import (
    CellProgress,
    Slot,
    cell_environment,
    ended,
    forget_unfinished,
    read_cell,
    slots_for,
    state_of,
)
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError
from recollect.core.threads import separate_cores
from recollect.views.axes import axis
from recollect.views.bilingual import Bilingual
from recollect.views.scatter import Point, scatter, undominated

ROOT = Path(__file__).resolve().parents[2]
LIGHT_PAPER = "rgb(252, 251, 248)"
SMALL = {"width": 8, "batch_size": 2, "steps": 16}
DATA = "recall:count=200"
OWN = """
from recollect import GRU
class Small(GRU):
    def __init__(self, width):
        super().__init__(width, width)
"""


CRASHES = """
import os, signal
class Crashing(Small):
    def read(self, x, memory, valid):
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def run_here(folder, names, slots, look, extra=""):
    progress = CellProgress(folder, dict.fromkeys(names, "waiting"))
    for name in names:
        cell.main([str(folder), name, *([extra] if extra else [])])
        progress.states[name] = state_of(read_cell(folder, name))
        look(progress)
    return progress


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """Run cells in this process, since starting one takes seconds, and measure short contexts only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(cell, "watch_parent", lambda: None)
        patch.setattr("recollect.comparison.compare.run_cells", run_here)
        patch.setattr("recollect.comparison.costs.read_contexts", partial(read_contexts, contexts=(128, 256, 512)))
        yield


SAME = {"budget": "steps=3", "seeds": 2, "heads": 2, **SMALL}


@pytest.fixture(scope="module")
def finished(in_process, tmp_path_factory):
    return rc.compare(DATA, ["gru", "transformer"], out=tmp_path_factory.mktemp("finished") / "c", **SAME)


@pytest.fixture
def compared(finished, tmp_path):
    """Return the comparison, with a copy of its folder in tmp_path / "c"."""
    shutil.copytree(finished.folder, tmp_path / "c")
    return finished


def test_a_comparison_has_everything(compared, tmp_path):
    assert {row.name for row in compared.rows} == {"gru", "transformer", "markov"}
    assert compared.is_whole
    assert [one.name for one in compared.baselines] == ["uniform", "unigram"]
    by_name = {row.name: row for row in compared.rows}
    gru, markov = by_name["gru"], by_name["markov"]
    assert len(gru.values) == 2
    assert len(markov.values) == 1
    assert markov.counts
    assert 0 < markov.figures["seconds"] < 60
    assert "speed" not in markov.figures
    assert gru.figures["updates"] == 3
    assert gru.figures["speed"] > 0
    assert gru.figures["peak_bytes"] > 0
    assert [row["context"] for row in gru.contexts][:2] == [128, 256]
    sizes = {name: [row["bytes"] for row in by_name[name].contexts] for name in ("gru", "transformer")}
    assert len(set(sizes["gru"])) == 1
    assert sizes["transformer"] == sorted(set(sizes["transformer"]))
    assert gru.slopes["bytes"] == 0
    assert by_name["transformer"].slopes["bytes"] == pytest.approx(1, abs=0.01)
    assert len(gru.by_position) > 5
    assert len(gru.curve) == 2
    saved = json.loads((tmp_path / "c" / "compare.json").read_text(encoding="utf-8"))
    assert saved["verdict"]["en"][0] == compared.verdict[0].en
    assert "recollect compare recall:count=200 --task language -m gru,transformer --budget 3steps" in saved["command"]
    assert compared.verdict[0].en in str(compared)


@needs_browser
def test_the_page_is_whole(compared, tmp_path):
    page = (tmp_path / "c" / "report.html").read_text(encoding="utf-8")
    assert compared.verdict[0].zh in page.replace("&lt;", "<").replace("&#39;", "'").replace("&#34;", '"')
    figures = 3 + 3 + 2  # quality against time, reading and memory; learning and positions; contexts
    check_page(tmp_path / "c" / "report.html", tmp_path, (), LIGHT_PAPER, figures)


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(
    ("data", "models", "drawn"),
    [
        ("reversed:count=300", ["cho", "transformer"], 3 + 3 + 2),
        ("kindness", ["bag-of-words", "lstm"], 3 + 2 + 2),
        ("verbs", ["lstm", "bilstm"], 3 + 2 + 2),
        ("seasons", ["linear", "gru"], 3 + 3 + 2),
    ],
)
def test_the_page_of_every_kind_is_whole(in_process, tmp_path, data, models, drawn):
    given = {"budget": "steps=4", "seeds": 2, "evaluate_every": 2, "width": 16}
    found = rc.compare(data, models, out=tmp_path / "c", **given)
    assert found.is_whole, found.verdict[-1].en
    check_page(tmp_path / "c" / "report.html", tmp_path, (), LIGHT_PAPER, drawn)


def test_the_same_call_continues_and_another_is_refused(compared, tmp_path):
    folder = tmp_path / "c"
    before = (folder / "cells" / "gru-seed0.json").stat().st_mtime_ns
    (folder / "cells" / "gru-seed1.json").write_text('{"status": "killed", "problem": "killed"}', encoding="utf-8")
    again = rc.compare(DATA, ["gru", "transformer"], out=folder, **SAME)
    assert (folder / "cells" / "gru-seed0.json").stat().st_mtime_ns == before
    assert [row.values for row in again.rows] == [row.values for row in compared.rows]
    with pytest.raises(FileError, match="holds another comparison"):
        rc.compare(DATA, ["gru", "transformer"], out=folder, **{**SAME, "seeds": 3})


def test_a_head_start_is_left_out(compared, tmp_path):
    folder = tmp_path / "c"
    log = folder / "runs" / "gru-seed1" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    kept = [json.dumps(row) + "\n" for row in rows if row["step"] != 1]
    log.write_text("".join(kept), encoding="utf-8")
    again = rc.compare(DATA, ["gru", "transformer"], out=folder, **SAME)
    assert not again.is_whole
    (problem,) = next(row.problems for row in again.rows if row.name == "gru")
    assert problem == "gru-seed1: a head start: the log begins with update 2"
    assert problem in again.verdict[-1].en
    assert again.judged.apart == ("gru",)
    assert "Not compared, since one seed tells nothing about others: gru (" in again.verdict[1].en
    assert len(next(row.values for row in again.rows if row.name == "gru")) == 1


def test_a_budget_of_epochs_is_audited_too(in_process, tmp_path):
    given = {**SMALL, "budget": "epochs=0.05", "seeds": 1}
    found = rc.compare(DATA, ["gru"], out=tmp_path / "c", **given)
    assert found.is_whole, found.verdict[-1].en
    log = tmp_path / "c" / "runs" / "gru-seed0" / "metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    last = max(row["step"] for row in rows)
    log.write_text("".join(json.dumps(row) + "\n" for row in rows if row["step"] < last), encoding="utf-8")
    again = rc.compare(DATA, ["gru"], out=tmp_path / "c", **given)
    (problem,) = next(row.problems for row in again.rows if row.name == "gru")
    assert problem.startswith("gru-seed0: ended early")


def test_results_do_not_depend_on_the_order_of_models(in_process, finished, tmp_path):
    turned = rc.compare(DATA, ["transformer", "gru"], out=tmp_path / "c", **SAME)
    assert figures(tmp_path / "c") == figures(finished.folder)
    assert turned.verdict[0] == finished.verdict[0]
    assert dict(turned.judged.chances) == dict(finished.judged.chances)


def test_seconds_on_another_machine_are_said(compared, tmp_path):
    folder, plan = tmp_path / "c", replace(compared.plan, limits={"max_seconds": 60})
    path = folder / "cells" / "gru-seed1.json"
    cell_elsewhere = {**json.loads(path.read_text(encoding="utf-8")), "machine": "another"}
    path.write_text(json.dumps(cell_elsewhere), encoding="utf-8")
    entrants = [Entrant("gru")]
    cells = {"gru": cells_of(compared.plan, entrants[0], None)}
    found = assemble(compared.plan, folder, entrants, cells, [])
    assert found.machine.endswith("; another")
    assert not any("Equal seconds" in sentence.en for sentence in found.verdict)
    found = assemble(plan, folder, entrants, cells, [])
    assert any(sentence.en.startswith("Equal seconds were not equal") for sentence in found.verdict)


def test_what_cannot_take_part_is_said_and_the_rest_goes_on(in_process, tmp_path):
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    words = ["compare", DATA, "-m", f"gru,bert,{tmp_path / 'own.py'}:Small", "--budget", "1tok", "--seeds", "1"]
    words += ["--out", str(tmp_path / "c"), *(f"--set={name}={value}" for name, value in SMALL.items())]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    found = json.loads((tmp_path / "c" / "compare.json").read_text(encoding="utf-8"))
    problems = {row["name"]: row["problems"] for row in found["rows"]}
    assert problems["markov"] == []
    assert "expected one of" in problems["bert"][0]
    for name in ("gru", "Small"):
        assert "too small for one update" in problems[name][0]
    assert "Left out: " in result.stdout
    assert "未计入：" in result.stdout


def test_a_cell_that_diverges_loses_itself(in_process, tmp_path):
    found = rc.compare(
        DATA, ["rnn"], budget="steps=30", seeds=1, out=tmp_path / "c", rate=1e30, clip_norm=1e30, **SMALL
    )
    (problem,) = next(row.problems for row in found.rows if row.name == "rnn")
    assert problem.startswith("rnn-seed0: diverged")
    assert found.judged.best == "markov"


def test_costs_that_cannot_be_measured_do_not_lose_the_cell(compared, tmp_path, monkeypatch):
    folder = tmp_path / "c"
    before = (folder / "cells" / "gru-seed0.json").read_bytes()
    (folder / "cells" / "gru-seed0.costs.json").unlink()

    def fail(run):
        raise MemoryError("16,384 symbols do not fit")

    monkeypatch.setattr(cell, "measure_costs", fail)
    with pytest.raises(MemoryError):
        cell.main([str(folder), "gru-seed0", "costs"])
    assert (folder / "cells" / "gru-seed0.json").read_bytes() == before
    cells = {"gru": cells_of(compared.plan, Entrant("gru"), None)}
    found = assemble(compared.plan, folder, [Entrant("gru")], cells, [])
    assert found.verdict[-1].en == "What these cost to use was not measured: gru."
    assert not any("cost to use" in sentence.en for sentence in compared.verdict)


def test_naive_rows_have_the_settings_of_the_comparison(in_process, tmp_path):
    rows = {}
    for gap in (1, 6):
        plan = Plan("seasons", "fill", ("gru",), settings={"gap": gap})
        task, dataset = open_data(plan, {})
        rows[gap] = {one.name: one.value for one in task.baselines(dataset)}
    assert rows[1].keys() == rows[6].keys()
    assert all(rows[1][name] != rows[6][name] for name in rows[1])


def test_equal_parameters(in_process, tmp_path):
    given = {"budget": "steps=1,params=20k", "seeds": 1, "out": tmp_path / "c", "batch_size": 2, "steps": 16}
    found = rc.compare(DATA, ["rnn", "transformer"], **given)
    assert found.is_whole, found.verdict[-1].en
    sizes = {row.name: row.figures["parameters"] for row in found.rows if not row.counts}
    assert len(sizes) == 2
    assert all(abs(size / 20_000 - 1) < 0.05 for size in sizes.values()), sizes


@pytest.mark.slow
def test_changed_data_and_code_are_not_mixed_with_what_was_measured(in_process, tmp_path):
    book, own = tmp_path / "book.txt", tmp_path / "own.py"
    book.write_text("the cat sat on the mat. " * 40, encoding="utf-8")
    own.write_text(OWN, encoding="utf-8")
    given = {"budget": "steps=1", "seeds": 1, "out": tmp_path / "c", **SMALL}
    rc.compare(book, [f"{own}:Small"], **given)
    rc.compare(book, [f"{own}:Small"], **given)
    own.write_text(OWN + "# changed\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"own\.py:Small has changed since the comparison in it began"):
        rc.compare(book, [f"{own}:Small"], **given)
    own.write_text(OWN, encoding="utf-8")
    book.write_text("the cat sat on the hat. " * 40, encoding="utf-8")
    with pytest.raises(FileError, match=r"book\.txt has changed since"):
        rc.compare(book, [f"{own}:Small"], **given)


def test_digests_are_those_of_contents(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "data" / name).write_text(name, encoding="utf-8")
    names = [str(tmp_path / "data"), str(tmp_path / "data" / "*.txt"), "python-docs", "recall:count=200", "x" * 5000]
    before = digests_of(names)
    assert list(before) == names[:2]
    (tmp_path / "data" / "a.txt").touch()
    assert digests_of(names) == before
    (tmp_path / "data" / "a.txt").write_text("A.txt", encoding="utf-8")
    assert changed(before, digests_of(names)) == names[0]


@pytest.mark.slow
def test_own_code_that_crashes_takes_only_itself_along(in_process, tmp_path):
    (tmp_path / "own.py").write_text(OWN + CRASHES, encoding="utf-8")
    own = [f"{tmp_path / 'own.py'}:{name}" for name in ("Small", "Crashing")]
    found = rc.compare(DATA, own, budget="steps=1", seeds=1, out=tmp_path / "c", **SMALL)
    problems = {row.name: row.problems for row in found.rows}
    assert problems["Crashing"] == ["Crashing: crashes when it is tried, by SIGSEGV"]
    assert not problems["Small"]
    with pytest.raises(SettingError, match="crashes when it is tried"):
        rc.compare(DATA, own[1:], budget="steps=1", seeds=1, out=tmp_path / "d", **SMALL)


def test_rates_are_searched_on_the_validation_part(in_process, tmp_path):
    found = rc.compare(DATA, ["gru"], budget="steps=4", seeds=2, rates=[1e-6, 1e-2], out=tmp_path / "c", **SMALL)
    gru = next(row for row in found.rows if row.name == "gru")
    assert gru.rate == 1e-2
    names = sorted(path.name for path in (tmp_path / "c" / "runs").glob("gru*"))
    assert names == ["gru-rate0.01-seed0", "gru-rate0.01-seed1", "gru-rate1e-06-seed0"]


def test_a_task_of_ones_own_stands_in_a_comparison(in_process, tmp_path):
    task = f"{ROOT / 'tests' / 'tasks' / 'sum_task.py'}:SumTask"
    found = rc.compare("digits", ["gru"], task=task, budget="steps=2", seeds=2, out=tmp_path / "c", batch_size=4)
    (row,) = found.rows
    assert len(row.values) == 2
    assert row.figures["parameters"] > 0


# ---- words and folders --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limits", "parameters"),
    [
        ("60s", {"max_seconds": 60}, None),
        ("1e6tok", {"max_tokens": 1_000_000}, None),
        ("steps=2000", {"max_steps": 2000}, None),
        ("params=1M", {"max_seconds": 60}, 1_000_000),
        ("30s,params=2.5k", {"max_seconds": 30}, 2500),
        ("steps=20,seconds=5", {"max_steps": 20, "max_seconds": 5}, None),
    ],
)
def test_budgets(text, limits, parameters):
    assert parse_compared(text) == (limits, parameters)


@pytest.mark.parametrize(
    "text", ["", "params=0", "params=many", "steps=-1", "60 parsecs", "60s,30s", "1m,seconds=30", "params=1k,params=2k"]
)
def test_wrong_budgets_are_refused(text):
    with pytest.raises(SettingError, match="--budget: got"):
        parse_compared(text)


def test_the_command_repeats_the_comparison():
    plan = Plan("a b.txt", "language", ("gru", "x.py:Mine"), limits={"max_steps": 20}, parameters=1000, rates=(0.001,))
    words = plan.command("out")
    assert words == (
        "recollect compare 'a b.txt' --task language -m gru,x.py:Mine --budget 20steps,params=1000 --seeds 3 "
        "--rates 0.001 --out out"
    )
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


@pytest.mark.parametrize("text", ["1e6tok", "steps=1234567", "0.5s", "90s,params=1M", "epochs=2", "steps=20,seconds=5"])
def test_the_budget_of_the_command_is_that_of_the_comparison(text):
    limits, parameters = parse_compared(text)
    words = shlex.split(Plan("x", "language", ("gru",), limits=limits, parameters=parameters).command("out"))
    assert parse_compared(words[words.index("--budget") + 1]) == (limits, parameters)


def test_folders_are_not_taken_from_others(tmp_path):
    plan = Plan("recall", "language", ("gru",))
    keep_plan(plan, tmp_path)
    assert read_plan(tmp_path) == plan
    with pytest.raises(FileError, match="holds another comparison"):
        keep_plan(replace(plan, seeds=4), tmp_path)
    with pytest.raises(FileError, match=r"book\.txt has changed since"):
        keep_plan(replace(plan, digests={"book.txt": "another"}), tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "book.txt").touch()
    with pytest.raises(FileError, match=r"'book\.txt' and is no comparison"):
        keep_plan(plan, tmp_path / "other")
    with locked(tmp_path), pytest.raises(FileError, match="another comparison works here"), locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-m", "gru,gru"], "gru twice"),
        (["-m", "gru", "--budget", "soon"], "--budget: got 'soon'"),
        (["-m", "gru", "--seeds", "0"], "--seeds: got 0"),
        (["-m", "gru", "--rates", "fast"], "--rates: got 'fast'"),
        (["-m", "gru", "--size", "huge"], "--size: got 'huge'"),
        (["-m", "gru", "--set", "ratee=1"], "did you mean rate"),
        (["-m", "grue"], "did you mean gru"),
    ],
)
def test_bad_input_is_refused(words, problem, tmp_path):
    done = CliRunner().invoke(app, ["compare", DATA, *words, "--out", str(tmp_path / "c")])
    assert isinstance(done.exception, ValueError)  # `main` prints it and exits with 2
    assert problem in str(done.exception)


def test_data_too_small_and_folders_in_use_are_refused(tmp_path):
    (tmp_path / "book.txt").write_text("ab", encoding="utf-8")
    (tmp_path / "used").mkdir()
    plan = Plan("recall:count=200", "language", ("gru",), limits={"max_steps": 1})
    keep_plan(plan, tmp_path / "used")
    cases = [(str(tmp_path / "book.txt"), "new", "expected at least"), (DATA, "used", "holds another comparison")]
    for data, folder, problem in cases:
        words = ["compare", data, "-m", "lstm", "--budget", "steps=1", "--out", str(tmp_path / folder)]
        assert problem in str(CliRunner().invoke(app, words).exception)
    with locked(tmp_path / "used"):
        done = CliRunner().invoke(app, ["compare", DATA, "-m", "gru", "--out", str(tmp_path / "used")])
    assert "another comparison works here" in str(done.exception)
    assert read_plan(tmp_path / "used") == plan


def test_code_that_no_other_process_can_load_is_refused():
    class Inner:
        pass

    with pytest.raises(SettingError, match="define it at the top of a Python file"):
        file_of(Inner)
    assert file_of(Cell).endswith("plan.py:Cell")
    assert short_name("a/b.py:Mine") == "Mine"


@pytest.mark.parametrize("family", ["gru", "transformer"])
@pytest.mark.parametrize("kind", ["language", "translate", "forecast", "tag"])
def test_every_kind_of_model_is_measured_by_context(kind, family):
    models = {
        "language": lambda: rc.LanguageModel(family, vocab_size=9, width=8, heads=2),
        "translate": lambda: rc.Translator("cho" if family == "gru" else family, 9, 9, width=8, heads=2),
        "forecast": lambda: rc.Forecaster(family, channels=2, lookback=16, horizon=4, width=8, heads=2),
        "tag": lambda: rc.Tagger(family, vocab_size=9, labels=3, width=8, heads=2),
    }
    rows = read_contexts(models[kind]().eval(), contexts=(64, 128, 256))
    assert [row["context"] for row in rows] == [64, 128, 256]
    assert all(row["seconds"] > 0 for row in rows)
    assert growth_of(rows, "bytes") == pytest.approx(0 if family == "gru" else 1, abs=0.05)
    assert growth_of(rows[:2], "bytes") is None


def test_models_that_see_all_at_once_have_no_contexts():
    assert read_contexts(rc.Tagger("bilstm", vocab_size=9, labels=3, width=8)) == []


def test_models_that_count_have_one_cell():
    plan = Plan("recall", "language", ("gru",), seeds=2)
    assert [c.name for c in cells_of(plan, Entrant("markov", counts=True), None)] == ["markov-seed0"]
    assert [c.name for c in cells_of(plan, Entrant("gru"), 0.01)] == ["gru-rate0.01-seed0", "gru-rate0.01-seed1"]
    assert cells_of(plan, Entrant("bert", problem="no"), None) == []


def test_cells_have_a_core_each():
    assert [slot.core for slot in slots_for("cpu", None, True)] == separate_cores()
    assert len(slots_for("cpu", 1, False)) == 1
    assert slots_for("cpu", None, False)[0].core is None
    assert [slot.device for slot in slots_for("cuda:1", None, True)] == ["cuda:1"]


@pytest.mark.parametrize(("visible", "number"), [(None, "1"), ("", "1"), ("4,6", "6"), ("GPU-aa,GPU-bb", "GPU-bb")])
def test_a_cell_sees_one_gpu_of_those_that_its_parent_sees(monkeypatch, visible, number):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cell_environment(Slot(device="cuda:1"))["CUDA_VISIBLE_DEVICES"] == number
    assert cell_environment(Slot(core=0))["OMP_NUM_THREADS"] == "1"


def test_a_cell_ends_without_a_word_while_it_watches_its_parent():
    code = "from recollect.comparison.cell import watch_parent; watch_parent(); import time; time.sleep(0.1)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert (process.wait(), process.stderr.read()) == (0, b"")


def test_a_killed_process_is_a_lost_cell(tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "gru-seed0.err").write_text("", encoding="utf-8")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        process.kill()
        assert ended(tmp_path, Slot(process=process, name="gru-seed0")) == "killed"
    assert read_cell(tmp_path, "gru-seed0")["problem"] == "by SIGKILL"
    assert forget_unfinished(tmp_path, ["gru-seed0"]) == ["gru-seed0"]
    assert read_cell(tmp_path, "gru-seed0") == {}


def test_the_front_is_what_no_point_beats():
    points = [Point("a", 1, 3, 1, 1), Point("b", 2, 2, 2, 2), Point("c", 3, 2.5, 3, 3), Point("d", 3, 1, 4, 4)]
    assert [one.name for one in undominated(points, low_is_good=True)] == ["a", "b", "d"]
    assert [one.name for one in undominated(points, low_is_good=False)] == ["a"]
    words = Bilingual("time", "时间")
    drawn = scatter(words, [replace(points[0], name="<a>")], axis(words, [1, 2]), axis(words, [1, 3]), low_is_good=True)
    assert "&lt;a&gt;" in drawn


# ---- processes ----------------------------------------------------------------------------------------

COMPARED = ["needle:distance=8,count=200", "-m", "gru,lstm", "--budget", "steps=60", "--seeds", "2"]
SET = ["--width", "8", "--batch_size", "4", "--set", "steps=16", "--evaluate_every", "20"]


def start(out: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "recollect", "compare", *words, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def figures(folder: Path) -> dict[str, object]:
    """Return what must not depend on kills: everything but time and memory."""
    found = {}
    for path in sorted((folder / "cells").glob("*-seed?.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        names = ("status", "numerators", "denominators", "by_position", "updates", "tokens", "sample")
        curve = [[step, tokens, value] for step, tokens, _, value in one["curve"]]
        found[path.name] = {"curve": curve, **{name: one[name] for name in names if name in one}}
    return found


def cells_running(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(word) for word in listed.read_text().split()] if listed.exists() else []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the figures of a comparison whose cells ran in processes of their own."""
    folder = tmp_path_factory.mktemp("undisturbed") / "c"
    with start(folder, *COMPARED, *SET) as process:
        assert process.wait() == 0, process.stderr.read().decode()
    return figures(folder)


@pytest.mark.slow
def test_kills_change_nothing(undisturbed, tmp_path):
    disturbed, rng, kills = tmp_path / "disturbed", random.Random(0), 0
    while True:
        with start(disturbed, *COMPARED, *SET) as process:
            try:
                process.wait(rng.uniform(2, 8) if kills < 4 else None)
                if process.returncode == 0:
                    break
            except subprocess.TimeoutExpired:
                running = cells_running(process.pid)
                os.kill(running[0] if running and kills % 2 else process.pid, signal.SIGKILL)
                kills += 1
                process.kill()
        time.sleep(0.1)
    assert kills
    assert figures(disturbed) == undisturbed


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None and "CI" not in os.environ, reason="ray is not installed")
def test_a_ray_cluster_gives_the_same_cells(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "local")  # one of its own, also where another runs or has just ended
    with start(tmp_path / "c", *COMPARED, *SET, "--ray") as process:
        try:
            assert process.wait(300) == 0, process.stderr.read().decode()
        finally:
            process.kill()
    assert figures(tmp_path / "c") == undisturbed


@pytest.mark.slow
def test_a_layer_of_ones_own_by_one_command(tmp_path):
    own = f"{ROOT / 'examples' / 'min_gru.py'}:MinGRU"
    words = [DATA, "-m", f"gru,{own}", "--budget", "steps=3", "--seeds", "1", "--width", "8", "--set", "steps=16"]
    with start(tmp_path / "c", *words) as process:
        assert process.wait() == 0, process.stderr.read().decode()
    found = json.loads((tmp_path / "c" / "compare.json").read_text(encoding="utf-8"))
    assert {row["name"] for row in found["rows"]} == {"gru", "MinGRU", "markov"}


@pytest.mark.slow
def test_a_task_of_ones_own_by_one_command(tmp_path):
    task = f"{ROOT / 'tests' / 'tasks' / 'sum_task.py'}:SumTask"
    with start(
        tmp_path / "c", "digits", "--task", task, "-m", "gru", "--budget", "steps=20", "--seeds", "2"
    ) as process:
        assert process.wait() == 0, process.stderr.read().decode()
    found = json.loads((tmp_path / "c" / "compare.json").read_text(encoding="utf-8"))
    (row,) = found["rows"]
    assert len(row["values"]) == 2
    assert (tmp_path / "c" / "report.html").stat().st_size > 10_000
