"""The few figures of the READMEs are the best of the long tables, in both languages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
writer = importlib.import_module("readme")
SAYS = pytest.mark.parametrize("say", [writer.english, writer.chinese], ids=["en", "zh"])


def character(family, loss, seed=0):
    setting = {"family": family, "layers": None, "dropout": 0.3, "rate": 0.001, "seed": seed}
    return {"setting": setting, "whole_set_loss": loss, "parameters": 1000}


@SAYS
def test_each_family_has_its_best_row_and_seeds_their_middle_one(say):
    rows = [character("lstm", 1.5), character("lstm", 1.4), character("gru", 1.6), character("lstm", 1.7)]
    rows += [character("transformer", loss, seed) for seed, loss in enumerate((1.45, 1.43, 1.47))]
    result = writer.load("characters") | {"rows": rows, "median": 1.45, "six_gram": 1.55}
    lines = writer.summary_blocks.best_characters_block(result, say).splitlines()
    assert [line.rsplit("| ")[-1] for line in lines[2:6]] == ["1.400 |", "1.450 |", "1.550 |", "1.600 |"]
    assert f"{say('seed')} 0" in lines[3]
    note = say(writer.summary_blocks.CHARACTERS_NOTE)
    assert note.format(tried=3, seeds=3) in lines[-1]


def scores(**by_year):
    return {
        f"test_{year}_flickr": {"beam 5": {"bleu_lowercase": s, "signature": "as said"}} for year, s in by_year.items()
    }


@SAYS
def test_the_line_has_both_directions_and_medians_over_seeds(say):
    rows = [
        {"name": f"cho, seed {i}", "parameters": 5000, **scores(**{"2016": b, "2017": 9.0})}
        for i, b in enumerate((1, 2, 6))
    ]
    rows += [{"name": "cho, to German", "parameters": 5000, **scores(**{"2016": 3.0, "2017": 4.0})}]
    rows += [{"name": "luong", "parameters": 5000, **scores(**{"2016": 3.0, "2017": 4.0})}]  # one direction alone
    result = writer.load("multi30k") | {"rows": rows, "least": {"cho": 1, "luong": 2, "cho, to German": 3}}
    lines = writer.summary_blocks.best_line_block(result, say).splitlines()
    assert lines[2:4] == ["| cho | 5,000 | 2.0 | 9.0 | 3.0 |", ""]
    assert "`as said`" in lines[-1]


@SAYS
def test_speed_is_that_of_the_goals_forward_and_backward(say):
    result = writer.load("recurrent")
    goals = [row for row in result["rows"] if row["goal"] and row["pass"] == "forward + backward"]
    shown = [row for row in goals if row["dtype"] != "float16"]
    lines = writer.summary_blocks.best_speed_block(result, say).splitlines()
    assert len(lines) == 2 + len(shown) + 2
    assert all(
        f"{row['ratio']:.2f} | {row['ratio_in_graphs']:.2f} |" in line
        for row, line in zip(shown, lines[2:], strict=False)
    )
