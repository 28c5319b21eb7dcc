"""Metrics against sacrebleu's own command, against values by hand, and against a plain table."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from recollect.evaluation.text_metrics import (
    bleu,
    chrf,
    exact_match,
    longest_common,
    rouge_l,
)

HYPOTHESES = ["The cat sits on the mat.", "A man in a red Hat walks his dog", "It's raining, isn't it?"]
REFERENCES = ["The cat sat on the mat.", "A man in a red hat is walking his dog.", "It is raining, isn't it?"]
CHINESE = ["我会说中文。", "今天的天气非常好。"]
CHINESE_HYPOTHESES = ["我会说一点中文。", "今天的天气很好。"]
# Hypothesis, reference and F-measure by rouge-score 0.1.2:
# RougeScorer(["rougeL"]).score(reference, hypothesis)["rougeL"].fmeasure
ROUGE_L = [
    ("a_b", "a b", 1.0),
    ("", "", 0),
    ("a", "", 0),
    ("", "a", 0),
    ("...", "...", 0),
    ("Don't stop_now", "don t stop now!", 1.0),
    ("naïve café", "naive cafe", 0.0),
    ("Straße 12", "strasse 12", 0.4),
    ("The cat sits on the mat.", "The cat sat on the mat.", 0.8333333333333334),
    ("It's raining, isn't it?", "It is raining, isn't it?", 0.8333333333333334),
    ("the gunman kill police", "police killed the gunman", 0.5),
    ("state-of-the-art 3.5x", "State of the Art: 3 5x", 1.0),
    ("x² ½ ªa µm", "x2 a m", 0.6666666666666666),
    ("İstanbul K", "i stanbul k", 1.0),
    ("running runs", "run ran", 0.0),
    ("one  two\tthree\nfour", "ONE,TWO;FOUR", 0.8571428571428571),
]


def by_command(folder, hypotheses, references, *options):
    (folder / "hypotheses").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    (folder / "references").write_text("\n".join(references) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", folder / "references", "-i", folder / "hypotheses", "-w", "6"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    scores = json.loads(done.stdout)
    return scores if isinstance(scores, list) else [scores]


def test_scores_are_those_of_sacrebleus_command(tmp_path):
    expected = by_command(tmp_path, HYPOTHESES, REFERENCES, "-m", "bleu", "chrf")
    for seen, wanted in zip((bleu(HYPOTHESES, REFERENCES), chrf(HYPOTHESES, REFERENCES)), expected, strict=True):
        assert seen["score"] == pytest.approx(wanted["score"], abs=1e-5)
        assert wanted["signature"] == seen["signature"]
    assert expected[0]["score"] > 20


def test_small_letters_and_chinese_too(tmp_path):
    (wanted,) = by_command(tmp_path, HYPOTHESES, REFERENCES, "-m", "bleu", "-lc")
    assert bleu(HYPOTHESES, REFERENCES, lowercase=True)["score"] == pytest.approx(wanted["score"], abs=1e-5)
    assert wanted["score"] > bleu(HYPOTHESES, REFERENCES)["score"]
    (wanted,) = by_command(tmp_path, CHINESE_HYPOTHESES, CHINESE, "-m", "bleu", "-tok", "zh")
    assert bleu(CHINESE_HYPOTHESES, CHINESE)["score"] == pytest.approx(wanted["score"], abs=1e-5)


def test_chinese_is_cut_as_chinese_by_the_references():
    seen = bleu(CHINESE_HYPOTHESES, CHINESE)
    assert "tok:zh" in seen["signature"]
    assert seen["score"] > 10 > 0.01 > bleu(CHINESE_HYPOTHESES, CHINESE, chinese=False)["score"]
    assert "tok:13a" in bleu(CHINESE_HYPOTHESES, REFERENCES[:2])["signature"]
    assert "tok:zh" in bleu(HYPOTHESES, REFERENCES, chinese=True)["signature"]
    assert bleu(CHINESE, [" ".join(line) for line in CHINESE])["score"] == pytest.approx(100)


def test_the_ends_of_the_scale():
    assert bleu(REFERENCES, REFERENCES)["score"] == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES)["score"] == pytest.approx(100)
    assert bleu(["", "", ""], REFERENCES)["score"] == 0
    assert chrf(["", "", ""], REFERENCES)["score"] == 0


def test_exact_matches():
    assert exact_match(["a  b", "c ", "d"], ["a b", "c", "D"]) == pytest.approx(2 / 3)


def test_rouge_by_hand():
    # police killed the gunman / police kill the gunman: L = 3 of 4 and 4; the gunman kill police: L = 2.
    assert rouge_l(["police kill the gunman"], ["Police killed the gunman."]) == pytest.approx(0.75)
    assert rouge_l(["the gunman kill police"], ["police killed the gunman"]) == pytest.approx(0.5)
    # P = 2/2, R = 2/4.
    assert rouge_l(["the gunman"], ["police killed the gunman"]) == pytest.approx(2 / 3)
    assert rouge_l(["我会中文"], ["我会说中文。"]) == pytest.approx(2 * 4 / 9)
    assert rouge_l(["", "", "a", "a"], ["", "a", "", "a"]) == pytest.approx(1 / 4)  # no token on a side: 0


@pytest.mark.parametrize(("hypothesis", "reference", "expected"), ROUGE_L)
def test_rouge_is_that_of_the_rouge_score_package(hypothesis, reference, expected):
    assert rouge_l([hypothesis], [reference]) == pytest.approx(expected, abs=1e-12)


LATIN = st.text("abAB19 _-.'\n\té ßİªµ²Ǆﬁ", max_size=16)


@given(hypothesis=LATIN, reference=LATIN)
def test_rouge_is_that_of_its_slow_definition(hypothesis, reference):
    assert rouge_l([hypothesis], [reference]) == pytest.approx(slow_rouge_l(hypothesis, reference), abs=1e-12)


def slow_rouge_l(hypothesis: str, reference: str) -> float:
    """Compute ROUGE-L as rouge-score does: its tokens, and the table of the longest common subsequence."""
    one, other = (re.sub("[^a-z0-9]+", " ", text.lower()).split() for text in (hypothesis, reference))
    if not one or not other:
        return 0.0
    length = table_of(one, other)[-1][-1]
    precision, recall = length / len(one), length / len(other)
    return 2 * precision * recall / (precision + recall) if length else 0.0


def test_rouge_of_other_scripts_has_tokens_too():
    """The rouge-score package drops all letters but a–z: each of these pairs has 0 there."""
    assert rouge_l(["我会 GPT4"], ["我会gpt4。"]) == 1
    assert rouge_l(["мама мыла_раму"], ["Мама, мыла окно"]) == pytest.approx(2 / 3)
    assert rouge_l(["ニュース 見た"], ["見た"]) == pytest.approx(2 * 2 / (3 + 2))


@given(one=st.text("abc", max_size=12), other=st.text("abc", max_size=12))
def test_the_longest_common_subsequence_is_that_of_the_table(one, other):
    assert longest_common(one, other) == table_of(one, other)[-1][-1]


def table_of(one, other) -> list[list[int]]:
    """Return the lengths of the longest common subsequences of all beginnings."""
    table = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else max(table[i][j + 1], table[i + 1][j])
    return table


@pytest.mark.parametrize("metric", [bleu, chrf, exact_match, rouge_l])
def test_nothing_to_measure_is_refused(metric):
    with pytest.raises(ValueError, match="references: got none, expected 1 or more"):
        metric([], [])
    with pytest.raises(ValueError, match="hypotheses: got 0, expected 1, one for each reference"):
        metric([], ["a"])
