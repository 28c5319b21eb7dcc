"""Where cells run on a Ray cluster, by what its machines tell. A real cluster is in the slow tests of test_compare."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import recollect as rc
from recollect.cli.main import app
from recollect.comparison.cluster import check_machines, look_around, places
from recollect.comparison.digests import digests_of
from recollect.comparison.plan import Plan, keep_plan
from recollect.core.serialize import FileError
from recollect.core.settings import SettingError

STEPS = Plan("recall", "language", ("gru",), limits={"max_steps": 3})
SECONDS = Plan("recall", "language", ("gru",))


def node(name="one", cpus=4, gpus=0):
    return {"NodeID": name, "NodeManagerHostname": name, "Resources": {"CPU": float(cpus), "GPU": float(gpus)}}


def machine(tmp_path, plan=STEPS, **told):
    keep_plan(plan, tmp_path)
    saved = (tmp_path / "plan.json").read_text(encoding="utf-8")
    return {**look_around(os.getcwd(), str(tmp_path), saved, dict(plan.digests)), "cores": [0, 2, 4], **told}


def test_every_core_is_given_once(tmp_path):
    one, beside, other = (machine(tmp_path, own=name) for name in ("a", "a", "b"))
    nodes = [node("one", 2), node("beside"), node("other")]
    found = places(nodes, [one, beside, other], SECONDS)
    assert [(slot.node, slot.core) for slot in found] == [
        ("one", 0),
        ("one", 2),
        ("beside", 4),
        ("other", 0),
        ("other", 2),
        ("other", 4),
    ]
    assert all(slot.device is None for slot in found)
    assert {slot.core for slot in places(nodes, [one, beside, other], STEPS)} == {None}  # none need have its own


def test_gpus_are_used_where_there_are_some(tmp_path):
    one = machine(tmp_path)
    found = places([node("one"), node("two", gpus=2)], [one, one], STEPS)
    assert [(slot.node, slot.device) for slot in found] == [
        ("two", "cuda:0"),
        ("two", "cuda:0"),
    ]  # the one that it sees
    on_cpu = Plan("recall", "language", ("gru",), limits={"max_steps": 3}, device="cpu")
    assert len(places([node("two", gpus=2)], [one], on_cpu)) == 3


def test_machines_that_cannot_take_part_are_refused(tmp_path):
    one = machine(tmp_path)
    check_machines([node()], [one], STEPS)
    with pytest.raises(SettingError, match="expected at least one"):
        check_machines([], [], STEPS)
    book, saved = tmp_path / "book.txt", (tmp_path / "plan.json").read_text(encoding="utf-8")
    book.write_text("words", encoding="utf-8")
    before = digests_of([str(book)])
    asked = [
        (os.getcwd(), tmp_path / "elsewhere", saved, {}, "elsewhere"),
        (tmp_path / "nowhere", tmp_path, saved, {}, "nowhere"),
        (os.getcwd(), tmp_path, saved, {str(book): "another"}, "book.txt"),
    ]
    for here, folder, plan, digests, unseen in asked:
        found = look_around(str(here), str(folder), plan, digests)
        with pytest.raises(FileError, match=f"{unseen}: is not on far as it is here"):
            check_machines([node("far")], [found], STEPS)
    assert look_around(os.getcwd(), str(tmp_path), saved, before)["unseen"] == ""
    with pytest.raises(SettingError, match="old: has recollect"):
        check_machines([node("old")], [{**one, "version": "0.0"}], STEPS)


def test_equal_seconds_need_equal_machines(tmp_path):
    both = [machine(tmp_path, processor="slow"), machine(tmp_path, processor="fast")]
    check_machines([node(), node()], both, STEPS)
    with pytest.raises(SettingError, match=r"seconds on machines that differ \(fast, slow\)"):
        check_machines([node(), node()], both, SECONDS)


def test_without_ray_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("recollect.cli.compare_verbs.find_spec", lambda name: None)
    words = ["compare", "recall:count=200", "-m", "gru", "--ray", "--out", str(tmp_path / "c")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "pip install 'recollect[cluster]'" in done.stderr
    assert not (tmp_path / "c").exists()
    with pytest.raises(SettingError, match=r"recollect\[cluster\]"):
        rc.compare("recall:count=200", ["gru"], budget="steps=1", out=Path(tmp_path) / "c", ray=True)
