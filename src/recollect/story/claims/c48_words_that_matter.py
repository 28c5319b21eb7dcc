"""C48: To translate, articles need no word, "very" does, and a noun such as "boy" can be translated without any other word.

中文：翻译时冠词可以不译，“very”不能省，而“boy”这样的名词不需要看其他词就能译出。
Seed: 003_d30a3ba1164faeec.txt:189, 004_87792308dac9c34b.txt:43
Budget: minutes
Expected: in a learned translation into Chinese an exchanged article changes nothing, a "very" that is left out takes 非常 with it, and the word for a person stays whatever other word is exchanged; but the word for an ambiguous noun changes with the place that decides it
预期：学会译成中文后，换冠词不改变译文；去掉“very”则“非常”随之消失；换掉其他任何词，人物名词的译文不变；但有歧义的名词，其译文随决定其含义的地点词而变
Rule: of the new sentences that are translated exactly, the shares in which an exchanged article changes nothing, 非常 disappears with "very" and the rest stays, the word for a person stays when another word is exchanged, and the ambiguous noun's stays when its place is exchanged: holds if the interval of each is above 0.9; holds if … (the noun is not ambiguous) where the last is below 0.9 and the others above; does not hold if one of the first three is below 0.9; else, or with fewer than half of the sentences translated exactly, not shown
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from random import Random

from recollect.data.synthetic.draw import pick
from recollect.data.synthetic.grammar import (
    ADJECTIVES,
    FINDINGS,
    INTENSIFIERS,
    NEAR,
    NOUNS,
    PEOPLE,
    STATES,
    TIMES,
)
from recollect.story.claim import Budget, Check, Control, Result, Verdict
from recollect.story.judging import interval
from recollect.story.small_translation import Taught, taught
from recollect.views.bilingual import Bilingual

ARTICLES = ("the", "a", "an")
CHINESE = dict((*PEOPLE, *INTENSIFIERS))
OTHER_SENSE = {  # of each place, one that selects the other sense of the same noun
    word: senses[1 - i].places[0][0] for senses in NOUNS.values() for i in (0, 1) for word, _ in senses[i].places
}
KINDS = [tuple(word for word, _ in kind) for kind in (ADJECTIVES, INTENSIFIERS, FINDINGS, TIMES, STATES, NEAR)]
KINDS += [tuple(NOUNS), tuple(OTHER_SENSE)]
ALIKE = {word: kind for kind in KINDS for word in kind}
NAMES = ("article", "very", "person", "noun")
UPDATES = 200
Case = tuple[list[str], list[str], str]  # a source, the translation before the exchange, the word that is asked for


def run(budget: Budget) -> Result:
    measured = [_shares(seed, 3 if budget.is_small else UPDATES) for seed in range(budget.seeds)]
    bounds = [interval([found[name] for found in measured]) for name in NAMES]
    mean = {name: statistics.fmean(found[name] for found in measured) for name in measured[0]}
    found = Bilingual(
        f"Of the {mean['exact']:.0%} of new sentences that are translated exactly: an exchanged article changes nothing in {mean['article']:.1%}; 非常 disappears with "
        f"“very” and the rest stays in {mean['very']:.1%}; the word for a person stays in {mean['person']:.1%} when another word is exchanged; that of an ambiguous "
        f"noun in {mean['noun']:.1%} when its place is. With others' sentences a person's word is there in {mean['shuffled']:.0%}.",
        f"在完全译对的新句子（{mean['exact']:.0%}）中：换冠词而译文不变 {mean['article']:.1%}；去掉“very”后“非常”消失而其余不变 {mean['very']:.1%}；"
        f"换掉其他词而人物名词的译文不变 {mean['person']:.1%}；换掉地点词而有歧义名词的译文不变 {mean['noun']:.1%}。换成别的句子时人物名词的译文出现在 {mean['shuffled']:.0%} 的句子中。",
    )
    return Result(
        verdict_of(mean["exact"], bounds[:3], bounds[3]),
        found,
        mean["noun"],
        bounds[3],
        Control(Bilingual("a person's word with another sentence", "换成别的句子时的人物名词"), mean["shuffled"]),
        Check(
            Bilingual("with another sentence the word for a person is not there", "换成别的句子时人物名词的译文不出现"),
            mean["shuffled"] < 0.5,
        ),
        condition=Bilingual("the noun is not ambiguous", "该名词没有歧义"),
        rows=measured,
    )


def verdict_of(exact: float, plain: Sequence[tuple[float, float]], ambiguous: tuple[float, float]) -> Verdict:
    """Return the verdict of the share translated exactly, and of intervals: articles, "very", persons; ambiguous nouns."""
    if exact < 0.5:
        return "not shown"
    if all(low > 0.9 for low, _ in plain):
        return "holds" if ambiguous[0] > 0.9 else "holds if" if ambiguous[1] < 0.9 else "not shown"
    return "does not hold" if any(high < 0.9 for _, high in plain) else "not shown"


def _shares(seed: int, updates: int) -> Mapping[str, float]:
    """Return the shares of sentences in which a change has the effect that it must have."""
    learned = taught(seed, updates)
    said = learned.translate([one.source for one in learned.held_out])
    right = [one for one, words in zip(learned.held_out, said, strict=True) if (*words, "。") == one.target]
    rng = Random(seed)
    sentences = [(list(one.source), list(one.target[:-1])) for one in right]
    people = [(words, target, word) for words, target in sentences for word in words if word in dict(PEOPLE)]
    places = [(words, target, word) for words, target in sentences for word in words if word in OTHER_SENSE]
    degrees = [(words, target, word) for words, target in sentences for word in words if word in dict(INTENSIFIERS)]
    articles = [(_with_another_article(words, rng), target) for words, target in sentences]
    kept = learned.translate([words for words, _ in articles])
    shorter = learned.translate([[one for one in words if one != word] for words, _, word in degrees])
    return {
        "exact": len(right) / len(learned.held_out),
        "article": _mean([new == target for new, (_, target) in zip(kept, articles, strict=True)]),
        "very": _mean(
            [
                _without(new, "很") == _without(target, "很", CHINESE[word])
                for new, (_, target, word) in zip(shorter, degrees, strict=True)
            ]
        ),
        "person": _mean(
            _is_there(learned, [(_with_another_word(words, rng), target, word) for words, target, word in people])
        ),
        "noun": _mean(_is_same_noun(learned, places)),
        "shuffled": _mean(_is_there(learned, _rolled(people))),
    }


def _mean(values: Sequence[bool]) -> float:
    return statistics.fmean(values) if values else 0.0


def _without(words: Sequence[str], *left_out: str) -> list[str]:
    return [word for word in words if word not in left_out]


def _rolled(cases: Sequence[Case]) -> list[Case]:
    """Return each case with the source of the next."""
    return [(other[0], target, word) for (_, target, word), other in zip(cases, [*cases[1:], *cases[:1]], strict=True)]


def _is_there(learned: Taught, cases: Sequence[Case]) -> list[bool]:
    """Return whether each source's translation has the word for the person."""
    said = learned.translate([words for words, _, _ in cases])
    return [CHINESE[word] in new for new, (_, _, word) in zip(said, cases, strict=True)]


def _is_same_noun(learned: Taught, cases: Sequence[Case]) -> list[bool]:
    """Return whether the ambiguous noun's word stays when its place is exchanged for one of the other sense."""
    said = learned.translate(
        [[OTHER_SENSE[place] if one == place else one for one in words] for words, _, place in cases]
    )
    senses = {sense.chinese for both in NOUNS.values() for sense in both}
    return [senses & set(new) == senses & set(target) for new, (_, target, _) in zip(said, cases, strict=True)]


def _with_another_article(words: list[str], rng: Random) -> list[str]:
    """Return the words with one article exchanged: "the" for "a" or "an", and the reverse."""
    at = pick(rng, [i for i, word in enumerate(words) if word in ARTICLES])
    indefinite = "an" if words[at + 1][0] in "aeiou" else "a"
    return [*words[:at], indefinite if words[at] == "the" else "the", *words[at + 1 :]]


def _with_another_word(words: list[str], rng: Random) -> list[str]:
    """Return the words with one of them, not the person, exchanged for another of its kind."""
    at = pick(rng, [i for i, word in enumerate(words) if word in ALIKE])
    return [*words[:at], pick(rng, _without(ALIKE[words[at]], words[at])), *words[at + 1 :]]
