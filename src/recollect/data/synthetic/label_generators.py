"""Labelled data that need no download: what apple means, noun or verb, and whether a review is kind.

The same arguments give the same examples on every machine, and none occurs twice. Arguments follow the name:
`kindness:count=2000,seed=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from recollect.data.error import DataError
from recollect.data.synthetic.draw import arguments, check_size, distinct, pick

Tagged = tuple[tuple[str, ...], tuple[str, ...]]  # words and their tags
PEOPLE = ("I", "we", "they", "my friends", "the children", "our neighbours", "you", "some people")
DAYS = ("today", "yesterday", "this week", "on Monday", "in May", "last year", "again", "once more", "in the evening")

# ---- apple -------------------------------------------------------------------------------------------

LEFT = {  # what stands before apple and decides what it means
    "fruit": ("like eating", "peeled", "washed and ate", "cut up", "baked", "picked from the tree", "bit into"),
    "company": ("work for", "bought shares of", "sued", "own stock in", "wrote software for", "invested in", "manage"),
}
RIGHT = {  # what stands behind it
    "fruit": ("is ripe", "is a sweet fruit", "tastes sour", "fell from the tree", "has a green skin", "is rotten"),
    "company": ("is a great company", "sells phones", "opened a store", "hired engineers", "reported a profit"),
}
OPENINGS = ("everyone says that", "I think that", "we heard that", "look ,", "my friend told me that", "they say")


def apple(share: int = 50, right: int = 50, count: int = 2_000, seed: int = 0) -> Iterator[Tagged]:
    """Yield `I like eating apple today` with one tag, at apple: fruit or company.

    `share` per cent are companies; in `right` per cent the evidence stands to the right of apple, and nothing to its
    left depends on the tag. All other words have no tag.
    """
    check_size("count", count)
    if not 0 <= share <= 100 or not 0 <= right <= 100:
        raise DataError(f"apple: got share={share}, right={right}, expected 0 to 100 per cent")

    def example(rng: Random) -> Tagged:
        tag = "company" if rng.random() * 100 < share else "fruit"
        if rng.random() * 100 < right:
            before, after = pick(rng, OPENINGS), pick(rng, RIGHT[tag])
        else:
            before, after = f"{pick(rng, PEOPLE)} {pick(rng, LEFT[tag])}", ""
        words = (*before.split(), "apple", *after.split(), *pick(rng, DAYS).split(), *_ending(rng))
        return words, tuple(tag if word == "apple" else "_" for word in words)

    return distinct(example, count, seed)


def _ending(rng: Random) -> tuple[str, ...]:
    return tuple(f"{pick(rng, ('indeed', 'so', 'well', 'and', 'oh'))} {pick(rng, ('.', '!', '…'))}".split())


# ---- noun or verb ------------------------------------------------------------------------------------

EITHER = ("book", "play", "walk", "watch", "cook", "fish", "light", "plant", "paint", "guard", "answer", "visit")
NOUNS = ("garden", "letter", "river", "teacher", "window", "road")
VERBS = ("see", "carry", "bring", "describe", "enjoy", "remember")
ARTICLES = ("the", "a", "this", "every", "my", "our")
SUBJECTS = ("we", "they", "I", "you")
MODALS = ("will", "can", "must", "should")
ADJECTIVES = ("old", "new", "small", "famous", "quiet")


def verbs(count: int = 2_000, seed: int = 0) -> Iterator[Tagged]:
    """Yield `we book a quiet walk` with a tag for each word: the same word is a noun or a verb by its place."""

    def noun_phrase(rng: Random) -> list[tuple[str, str]]:
        phrase = [(pick(rng, ARTICLES), "DET")]
        if rng.random() < 0.4:
            phrase.append((pick(rng, ADJECTIVES), "ADJ"))
        return [*phrase, (pick(rng, EITHER if rng.random() < 0.7 else NOUNS), "NOUN")]

    def example(rng: Random) -> Tagged:
        subject = [(pick(rng, SUBJECTS), "PRON")] if rng.random() < 0.6 else noun_phrase(rng)
        helper = [(pick(rng, MODALS), "AUX")] if subject[0][1] == "DET" or rng.random() < 0.5 else []
        verb = [(pick(rng, EITHER if rng.random() < 0.7 else VERBS), "VERB")]
        words, tags = zip(*(*subject, *helper, *verb, *noun_phrase(rng), (".", "PUNCT")), strict=True)
        return words, tags

    return distinct(example, count, seed)


# ---- kindness ----------------------------------------------------------------------------------------

GOOD = ("good", "great", "lovely", "friendly", "clever", "funny", "moving", "warm")
BAD = ("bad", "awful", "dull", "rude", "boring", "weak", "cold", "silly")
THINGS = ("film", "book", "song", "dinner", "hotel", "waiter", "story", "service", "play", "speech")
DEGREES = ("", "", "very", "really", "quite", "so")
ASIDES = ("I did not expect it , but", "I had not been there before , and", "not long ago I saw it :", "", "", "")
GOOD_ZH = ("好", "棒", "精彩", "友善", "有趣", "感人", "温暖", "聪明")
BAD_ZH = ("差", "糟", "无聊", "粗鲁", "冷淡", "沉闷", "可笑", "乏味")
THINGS_ZH = ("电影", "书", "歌", "晚饭", "酒店", "服务员", "故事", "服务", "演出", "演讲")
ASIDES_ZH = ("我没想到，", "以前不常来，", "不久前看的，", "", "", "")


def kindness(negated: int = 50, chinese: int = 0, count: int = 3_000, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield `the film was not very good .` and `unkind`: a kind or an unkind word, which a negation turns round.

    `negated` per cent have a negation at their adjective; some have another one that turns nothing. With chinese=1 the
    sentences are Chinese.
    """

    def example(rng: Random) -> tuple[str, str]:
        is_good, is_negated = rng.random() < 0.5, rng.random() * 100 < negated
        label = "kind" if is_good != is_negated else "unkind"
        if chinese:
            word, thing = pick(rng, GOOD_ZH if is_good else BAD_ZH), pick(rng, THINGS_ZH)
            degree = pick(rng, ("", "很", "太", "特别")) if is_negated else pick(rng, ("很", "太", "特别", "真"))
            return (
                f"{pick(rng, ASIDES_ZH)}这{pick(rng, ('次', '回', '里'))}的{thing}{'不' * is_negated}{degree}{word}。",
                label,
            )
        word, degree = pick(rng, GOOD if is_good else BAD), pick(rng, DEGREES)
        negation = pick(rng, ("not", "never", "not at all")) if is_negated else ""
        words = f"{pick(rng, ASIDES)} the {pick(rng, THINGS)} was {negation} {degree} {word} {pick(rng, DAYS)} ."
        return " ".join(words.split()), label

    return distinct(example, count, seed)


@dataclass(frozen=True)
class LabelTask:
    """Named examples: what they are, the task that they are for, and the function that yields them."""

    name: str
    summary: str
    task: str
    examples: Callable[..., Iterator[Any]]


LABEL_TASKS = {
    one.name: one
    for one in (
        LabelTask("apple", "apple the fruit or the company, by words to its left or right", "tag", apple),
        LabelTask("verbs", "words that are nouns or verbs by their place", "tag", verbs),
        LabelTask("kindness", "kind or unkind, with negations", "classify", kindness),
    )
}


def generated_tags(data: str) -> Iterator[Tagged]:
    """Yield the examples of `apple` or `verbs`, with arguments as in `apple:right=100`."""
    return _generated(data)


def generated_texts(data: str) -> Iterator[tuple[str, str]]:
    """Yield the examples of `kindness`, with arguments as in `kindness:count=500`."""
    return _generated(data)


def _generated(data: str) -> Iterator[Any]:
    name, _, given = data.partition(":")
    make = LABEL_TASKS[name].examples
    return make(**arguments(name, make, given))
