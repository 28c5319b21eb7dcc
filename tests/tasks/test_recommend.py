"""Recommendation from the command line and from Python."""

from __future__ import annotations

import json

import pytest

import recollect as rc
from command_line import ask, check_equal_weights, killed_at

SMALL = "tastes:users=40,films=30,each=15"
OPTIONS = ["--budget", "60steps", "--batch", "32", "--set", "evaluate_every=30", "--set", "width=2"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("recommend") / "run")
    told = ask("train", SMALL, *OPTIONS, "--out", folder)
    assert "Next: recollect predict" in told.stderr
    return folder


def test_a_user_is_recommended_new_items(run):
    rows = ask("predict", run, "user-3").stdout.splitlines()
    assert len(rows) == 10
    films = {row.rpartition("\t")[2] for row in rows}
    opened = rc.load(run)
    user = opened.assets["users"].id("user-3")
    rated = {opened.assets["items"].names[i] for i in opened.assets["rated"].items[user]}
    assert not films & rated
    found = json.loads(ask("predict", run, "user-3", "--nbest", "2", "--json").stdout)
    assert [one["text"] for one in found["targets"]] == [row.rpartition("\t")[2] for row in rows[:2]]
    assert found["targets"][0]["score"] >= found["targets"][1]["score"]


def test_a_pair_is_rated(run):
    assert 0 < float(ask("predict", run, "user-3,film-2").stdout.split("\t")[1]) < 6
    whole = rc.load(run).predict(["user-3,film-2", "user-3\tfilm-2"])
    assert whole[0].targets == whole[1].targets


def test_scores_and_baselines(run):
    shown = json.loads(ask("evaluate", run, "--json").stdout)
    assert shown["measures"]["recall"]["lower_is_better"] is False
    assert {"rmse", "mae"} < set(shown["rows"][0])
    assert 0 < shown["rows"][1]["mrr"] <= 1
    opened = rc.load(run)
    assert next(one.name for one in opened.task.baselines(opened.dataset())) == "mean"


def test_other_ratings_are_evaluated(run, tmp_path):
    path = tmp_path / "more.csv"
    path.write_text("user-1,film-2,3.5\nstranger,film-3,2\n")
    shown = json.loads(ask("evaluate", run, str(path), "--json").stdout)
    assert shown["ratings"] == 2


def test_ratings_of_strangers_alone_are_evaluated_without_ranks(run, tmp_path):
    path = tmp_path / "strangers.csv"
    path.write_text("stranger,film-1,3\nuser-1,unseen,4\n")
    found = json.loads(ask("evaluate", run, str(path), "--json").stdout)
    assert [row["read"] for row in found["rows"]] == ["ratings"]
    assert "NaN" not in json.dumps(found)


def test_the_card_and_the_plan(run):
    card = (rc.load(run).folder / "README.md").read_text(encoding="utf-8")
    assert "A recommender" in card
    assert "推荐模型" in card
    assert "best validation rmse" in card
    assert "yes" in ask("plan", SMALL, *OPTIONS).stdout


def test_an_unknown_user_is_refused(run):
    told = ask("predict", run, "stranger", code=2).stderr
    assert "'stranger': a user that the run does not know" in told
    told = ask("predict", run, "user-3,flim-7", code=2).stderr
    assert "'flim-7': an item that the run does not know; did you mean film-7" in told


@pytest.mark.slow
def test_a_killed_run_resumes_bit_equal(run, tmp_path):
    folder = str(tmp_path / "killed")
    killed_at(40, "train", SMALL, *OPTIONS, "--out", folder)
    ask("resume", folder)
    check_equal_weights(run, folder)
