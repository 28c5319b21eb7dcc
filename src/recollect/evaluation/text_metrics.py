"""Metrics of generated text: BLEU and chrF (by sacrebleu), ROUGE-L, exact match and token accuracy.

BLEU and chrF come with sacrebleu's signature, without which they are not comparable.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypedDict

from recollect.data.text.line_tokenizer import is_mostly_han
from recollect.data.text.spacing import HAN_LETTER

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

# Latin letters beyond a–z are no part of a word, as in rouge-score; letters of other scripts, which it drops, are.
LATIN_BLOCKS = "\\x00-\u036f\u1d00-\u1dbf\u1e00-\u1eff\u2000-\u218f\u2c60-\u2c7f\ua720-\ua7ff\ufb00-\ufb06"
ROUGE_TOKENS = re.compile(rf"[a-z0-9]+|{HAN_LETTER}|(?:(?!{HAN_LETTER})[^\W{LATIN_BLOCKS}])+")


class CorpusScore(TypedDict):
    """A score of sacrebleu, 0 to 100, and the signature of its settings."""

    score: float
    signature: str


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, chinese: bool | None = None
) -> CorpusScore:
    """Compute corpus BLEU, 0 to 100, and its signature (Papineni et al. 2002; Post 2018).

    Tokenised by `13a`, and by `zh` where the references are mostly Han: for 13a a Chinese sentence is one word, and
    its BLEU is 0. `chinese` overrides what the references suggest.
    """
    _check(hypotheses, references)
    from sacrebleu.metrics.bleu import BLEU

    is_chinese = is_mostly_han("".join(references)) if chinese is None else chinese
    return _scored(
        BLEU(lowercase=lowercase, tokenize="zh" if is_chinese else "13a", force=True), hypotheses, references
    )


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> CorpusScore:
    """Compute corpus chrF2, 0 to 100, and its signature: character n-grams up to 6, β = 2 (Popović 2015)."""
    _check(hypotheses, references)
    from sacrebleu.metrics.chrf import CHRF

    return _scored(CHRF(lowercase=lowercase), hypotheses, references)


def _scored(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> CorpusScore:
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return {"score": float(score), "signature": metric.get_signature().format()}


def symbol_accuracy(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return 1 − (substitutions + deletions + insertions) / characters of the references, without blanks.

    The edits are the fewest that turn each hypothesis into its reference (Levenshtein 1966): 1 − the character error
    rate. It is negative where there are more edits than characters.
    """
    _check(hypotheses, references)
    pairs = [("".join(one.split()), "".join(other.split())) for one, other in zip(hypotheses, references, strict=True)]
    size = sum(len(reference) for _, reference in pairs)
    return 1 - sum(edits(*pair) for pair in pairs) / size if size else float("nan")


def edits(one: str, other: str) -> int:
    """Return the fewest insertions, deletions and substitutions of a character that turn one text into the other."""
    row = list(range(len(other) + 1))
    for i, symbol in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, wanted in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (symbol != wanted))
    return row[-1]


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Compute the share of hypotheses that equal their reference, white space aside."""
    _check(hypotheses, references)
    pairs = zip(hypotheses, references, strict=True)
    return sum(one.split() == other.split() for one, other in pairs) / len(references)


def rouge_l(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Compute the mean F1 of the longest common subsequence, 0 to 1 (Lin 2004).

    P = L / |hypothesis|, R = L / |reference|, F1 = 2 P R / (P + R); 0 where a side has no token

    Tokens are runs of a–z and 0–9 after conversion to lower case, without stemming: for text in the Latin alphabet the
    F-measure of the rouge-score package (`RougeScorer(["rougeL"])`). It drops all other letters; here a Han character
    is a token, and so is a run of letters of any other script.
    """
    _check(hypotheses, references)
    total = 0.0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        one = ROUGE_TOKENS.findall(hypothesis.lower())
        other = ROUGE_TOKENS.findall(reference.lower())
        if one and other:
            total += 2 * longest_common(one, other) / (len(one) + len(other))  # = 2 P R / (P + R)
    return total / len(references)


def longest_common(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Compute the length of the longest common subsequence, with a column of the table as the bits of one integer.

    A bit of `column` is 0 where the length grows by one (Hyyrö 2004).
    """
    places: dict[Hashable, int] = {}
    for place, symbol in enumerate(one):
        places[symbol] = places.get(symbol, 0) | 1 << place
    full = (1 << len(one)) - 1
    column = full
    for symbol in other:
        met = column & places.get(symbol, 0)
        column = (column + met | column - met) & full
    return len(one) - bin(column).count("1")


def _check(hypotheses: Sequence[object], references: Sequence[object]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"hypotheses: got {len(hypotheses)}, expected {len(references)}, one for each reference")
    if not references:
        raise ValueError("references: got none, expected 1 or more to measure by")
