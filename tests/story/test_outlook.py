"""What is said about more time follows from the losses, whatever they are."""

from __future__ import annotations

import math

import pytest

from demo_outcome import outlook


def test_a_steady_gain_crosses_where_the_line_does():
    seen = outlook(2.0, 1.6, 1.2, counter_loss=1.0)  # 0.4 for each factor of four; 0.2 are missing: half of one
    assert seen.crossing == pytest.approx((30.0, 30.0))
    assert seen.loss_after(60.0, is_shrinking=True) == seen.loss_after(60.0, is_shrinking=False) == pytest.approx(0.8)


def test_shrinking_gains_cross_later():
    seen = outlook(2.0, 1.6, 1.4, counter_loss=1.3)  # 0.4, 0.2, then 0.1 at the next
    soonest, latest = seen.crossing
    assert soonest == pytest.approx(15 * 4**0.5)
    assert latest == pytest.approx(60.0)
    assert seen.loss_after(60.0, is_shrinking=True) == pytest.approx(1.3)
    assert seen.loss_after(240.0, is_shrinking=True) == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("losses", "counter", "english", "chinese"),
    [
        (
            (2.1, 1.6, 1.27),
            1.2,
            "would draw level after about 20 s, or 22 s if its gains",
            "约在 20 秒时追平；若收益继续",
        ),
        ((2.4, 1.6, 1.4), 1.3, "if its gains keep shrinking as they did, later or never", "甚至追不上"),
        ((2.0, 1.95, 1.9), 1.2, "would not draw level within 60 s", "60 秒之内追不上"),
        ((2.0, 1.5, 1.5), 1.2, "more of the same training would not change the order", "名次不会变"),
        (
            (2.0, 1.6, 1.1),
            1.2,
            "gru is ahead of markov after 15 seconds, by 0.100 nats",
            "gru 已领先 markov，低 0.100 奈特",
        ),
    ],
    ids=["level soon", "flattens out", "far away", "no gain", "ahead"],
)
def test_each_outcome_has_its_sentence(losses, counter, english, chinese):
    in_english, in_chinese = outlook(*losses, counter_loss=counter).sentences()
    assert english in in_english
    assert chinese in in_chinese
    assert ("an extrapolation" in in_english) == ("draw level after" in in_english)
    assert all(f"{loss:.3f}" in words for loss in losses for words in (in_english, in_chinese))
    assert ("Each longer training ended lower" in in_english) == (losses[1] > losses[2])


def test_gains_that_cannot_reach_it_never_do():
    assert outlook(2.0, 1.6, 1.4, counter_loss=1.1).crossing[1] == math.inf
    assert outlook(2.0, 1.5, 1.6).crossing is None
