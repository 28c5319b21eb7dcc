"""Questions that need no download: stories, reports, what *it* refers to, and sentences that answer a question.

The same arguments give the same examples on every machine, and none occurs twice. Arguments follow the name:
`stories:count=500,seed=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from recollect.data.error import DataError
from recollect.data.synthetic.draw import arguments, below, distinct, pick


class Question(NamedTuple):
    """A query and the texts that it is about: the answer in the only text, or which texts are right."""

    query: str
    texts: tuple[str, ...]
    answer: str | None  # None: `right` tells
    right: tuple[bool, ...]
    where: str = ""


NAMES = ("mary", "john", "daniel", "sandra", "emma", "paul", "lena", "omar")
PLACES = ("kitchen", "garden", "office", "bathroom", "hallway", "bedroom", "attic", "cellar")
MOVES = ("went to", "moved to", "hurried to", "travelled to", "ran to")


def stories(least: int = 3, most: int = 6, count: int = 2_000, seed: int = 0) -> Iterator[Question]:
    """Yield `mary went to the kitchen . john ran to the office .` and `where is mary ?`: the last place counts."""
    if not 1 <= least <= most:
        raise DataError(f"stories: got least={least}, most={most}, expected 1 ≤ least ≤ most")

    def example(rng: Random) -> Question:
        people = _some(rng, NAMES, 3)
        last: dict[str, str] = {}
        lines = []
        for _ in range(least + below(rng, most - least + 1)):
            name = pick(rng, people)
            last[name] = pick(rng, [place for place in PLACES if place != last.get(name)])
            lines.append(f"{name} {pick(rng, MOVES)} the {last[name]} .")
        asked = pick(rng, sorted(last))
        return _pointed(" ".join(lines), f"where is {asked} ?", last[asked])

    return distinct(example, count, seed)


MONTHS = ("january", "march", "april", "june", "july", "september", "october", "december")
CITIES = ("avonlea", "brookfield", "carlow", "denby", "elmstead", "fenwick", "granby", "holt")
EVENTS = ("a storm", "a fire", "a strike", "a flood", "heavy snow", "an explosion")
DAMAGE = ("closed the airport", "stopped all trains", "damaged many houses", "cut off the power", "blocked the bridge")
SPEAKERS = ("the mayor", "the police", "a reporter", "the fire brigade", "a witness", "the minister")
FILLERS = (
    "nobody was hurt .",
    "the damage is being repaired .",
    "people were asked to stay at home .",
    "schools are closed .",
)
ASKED = ("when ?", "where ?", "who said it ?")


def reports(count: int = 2_000, seed: int = 0) -> Iterator[Question]:
    """Yield `on 12 may a storm closed the airport in denby , the mayor said .` and `when ?`, `where ?` or `who …`."""

    def example(rng: Random) -> Question:
        date = f"{1 + below(rng, 28)} {pick(rng, MONTHS)}"
        city, speaker = pick(rng, CITIES), pick(rng, SPEAKERS)
        number = f"{2 + below(rng, 40)} people waited for hours ."
        fact = f"{pick(rng, EVENTS)} {pick(rng, DAMAGE)} in {city}"
        head = f"on {date} {fact}" if rng.random() < 0.5 else f"{fact} on {date}"
        lines = [f"{head} , {speaker} said .", pick(rng, FILLERS), number]
        text = " ".join(lines if rng.random() < 0.5 else [lines[1], lines[0], lines[2]])
        which = below(rng, len(ASKED))
        return _pointed(text, ASKED[which], (date, city, speaker)[which])

    return distinct(example, count, seed)


THINGS = ("table", "wardrobe", "piano", "trunk", "mirror", "statue", "carpet", "ladder")
HOLES = ("door", "window", "lift", "van", "hallway", "gate")
ANIMALS = ("dog", "cat", "fox", "wolf", "horse", "goat", "bear", "lion")
CHASES = ("chased", "followed", "attacked", "hunted")
OF_FIRST = ("was hungry", "was angry", "wanted to eat", "was the stronger one")  # of the one that chases
OF_SECOND = ("had taken its food", "had run away", "looked easy to catch", "was the weaker one")  # of the one chased
WIDE = ("too wide", "too big", "too tall", "too bulky")
NARROW = ("too narrow", "too small", "too low", "too tight")


def pronouns(count: int = 2_000, seed: int = 0) -> Iterator[Question]:
    """Yield `the piano did not fit through the door because it was too wide .` and `it ?`: the reason decides."""

    def example(rng: Random) -> Question:
        is_first = rng.random() < 0.5
        if rng.random() < 0.5:
            first, second = pick(rng, THINGS), pick(rng, HOLES)
            reason = f"was {pick(rng, WIDE if is_first else NARROW)}"
            fact = f"the {first} did not fit through the {second}"
        else:
            first, second = _some(rng, ANIMALS, 2)
            reason = pick(rng, OF_FIRST if is_first else OF_SECOND)
            fact = f"the {first} {pick(rng, CHASES)} the {second}"
        day = pick(rng, ("", "today ", "yesterday ", "on monday ", "last week "))
        return _pointed(f"{day}{fact} because it {reason} .", "it ?", first if is_first else second)

    return distinct(example, count, seed)


DOES = ("chased", "saw", "heard", "followed", "feared", "liked")


def answers(candidates: int = 5, count: int = 2_000, seed: int = 0) -> Iterator[Question]:
    """Yield `who chased the cat ?` and sentences, of which one answers it; another has the same words in another order.

    A bag of words cannot tell these two apart.
    """
    if candidates < 2:
        raise DataError(f"answers: candidates={candidates}: expected 2 or more")

    def example(rng: Random) -> Question:
        one, other = _some(rng, ANIMALS, 2)
        verb = pick(rng, DOES)
        day = pick(rng, ("today", "yesterday", "at night", "in may"))
        right = f"the {one} {verb} the {other} {day} ."
        texts = {right, f"the {other} {verb} the {one} {day} ."}
        while len(texts) < candidates:
            some, another = _some(rng, ANIMALS, 2)
            does = pick(rng, DOES)
            if (does, another) != (verb, other):
                texts.add(f"the {some} {does} the {another} {day} .")
        shown = _some(rng, sorted(texts), len(texts))
        return Question(f"who {verb} the {other} ?", shown, None, tuple(text == right for text in shown))

    return distinct(example, count, seed)


def _pointed(text: str, query: str, answer: str) -> Question:
    return Question(query, (text,), answer, ())


def _some(rng: Random, choices: tuple[str, ...] | list[str], count: int) -> tuple[str, ...]:
    """Draw `count` different choices, in a random order."""
    left = list(choices)
    return tuple(left.pop(below(rng, len(left))) for _ in range(count))


MATCH_TASKS: dict[str, Callable[..., Iterator[Question]]] = {
    "stories": stories,
    "reports": reports,
    "pronouns": pronouns,
    "answers": answers,
}


def generated_questions(data: str) -> Iterator[Question]:
    """Yield the questions of a built-in, with arguments as in `stories:count=500`."""
    name, _, given = data.partition(":")
    make: Any = MATCH_TASKS[name]
    return (one._replace(where=f"{data}, {i}") for i, one in enumerate(make(**arguments(name, make, given)), 1))
