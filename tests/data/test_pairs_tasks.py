"""Generated pairs are right, by an independent way back, and the same every time."""

from __future__ import annotations

import doctest
import importlib
import re
from collections import defaultdict
from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given, strategies as st

import recollect
from recollect.data.error import DataError
from recollect.data.pairs.pairs import load_pairs
from recollect.data.synthetic.grammar import ADJECTIVES, INTENSIFIERS, NOUNS, aligned_grammar
from recollect.data.synthetic.number_words import MOST, chinese_words, english_words
from recollect.data.synthetic.pair_generators import DATE_FORMATS, PAIR_TASKS, task_pairs
from recollect.data.synthetic.shapes import COLOURS, GROUND, shapes

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
VALUES = {word: value for value, word in enumerate(ONES + TEENS)} | {word: 10 * i for i, word in enumerate(TENS, 2)}


def from_english(words):
    total = group = 0
    for word in words.replace("-", " ").split():
        if word == "hundred":
            group *= 100
        elif word in ("thousand", "million"):
            total, group = total + group * {"thousand": 1000, "million": 10**6}[word], 0
        else:
            group += VALUES[word]
    return total + group


def from_chinese(words):
    total = group = digit = 0
    for character in words:
        if character == "万":
            total, group, digit = (group + digit) * 10_000, 0, 0
        elif character in "十百千":
            group += (digit or 1) * {"十": 10, "百": 100, "千": 1000}[character]
            digit = 0
        else:
            digit = "零一二三四五六七八九".index(character)
    return total + group + digit


@given(number=st.integers(0, MOST))
def test_numbers_come_back_from_words(number):
    assert from_english(english_words(number)) == number
    assert from_chinese(chinese_words(number)) == number


def test_small_numbers_have_words_of_their_own():
    for words in (english_words, chinese_words):
        assert len({words(number) for number in range(12_000)}) == 12_000
    some = {0: "零", 10: "十", 110: "一百一十", 1001: "一千零一", 10_010: "一万零一十", 100_000: "十万"}
    assert {number: chinese_words(number) for number in some} == some
    with pytest.raises(ValueError, match=f"number: got {MOST + 1}, expected 0 to {MOST}"):
        english_words(MOST + 1)


def test_numbers_are_of_all_lengths():
    for words, digits in task_pairs("numbers:count=300"):
        assert from_english(words) == int(digits)
    for words, digits in task_pairs("numbers:count=300,chinese=1"):
        assert from_chinese(words) == int(digits)
    lengths = {len(digits) for _, digits in task_pairs("numbers:count=300")}
    assert lengths == set(range(1, 8))
    assert max(int(digits) for _, digits in task_pairs("numbers:most=120,count=121")) == 120


PATTERNS = ["%d %B %Y", "%B %d, %Y", "%d %b %Y", "%d-%b-%Y", "%A, %B %d, %Y", "%a %d %b %Y", "the %d of %B, %Y"]
PATTERNS += ["%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%Y%m%d", "%Y年%m月%d日"]


def parsed(text):
    """Give every day that the text could mean."""
    plain = re.sub(r"(\d)(st|nd|rd|th)", r"\1", text)
    if "〇" in plain or not re.search(r"\d", plain):
        year, rest = plain.split("年")
        month, day = rest.removesuffix("日").split("月")
        return {
            date(int("".join(str("〇一二三四五六七八九".index(c)) for c in year)), *map(from_chinese, (month, day)))
        }
    found = set()
    for pattern in PATTERNS:
        try:
            found.add(datetime.strptime(plain, pattern).date())
        except ValueError:
            continue
    return found


def test_dates_are_parsed_to_what_they_say():
    seen = list(task_pairs("dates:count=1500"))
    for text, iso in seen:
        assert parsed(text) == {date.fromisoformat(iso)}
    day = date(2021, 3, 3)
    assert len({form(day) for form in DATE_FORMATS}) == len(DATE_FORMATS)
    ordinals = ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]
    days = [date(2021, 3, int(ordinal[:-2])) for ordinal in ordinals]
    assert [DATE_FORMATS[6](day) for day in days] == [f"the {ordinal} of March, 2021" for ordinal in ordinals]


def test_letters_are_reversed():
    for word, turned in task_pairs("reversed:length=9,symbols=4,count=200"):
        assert turned == "".join(reversed(word))
        assert 5 <= len(word) <= 9
        assert set(word) <= set("abcd")


# ---- grammar -------------------------------------------------------------------------------------------

NEAR = {"in", "beside", "under", "behind"}
EXAMPLES = list(aligned_grammar(clauses=2, count=3000, seed=2))


def test_links_join_each_word_to_its_own():
    meanings = defaultdict(set)
    for pair in EXAMPLES:
        for i, j in pair.links:
            meanings[pair.source[i]].add(pair.target[j])
    assert not {"a", "an", "the", "is"} & set(meanings)
    for noun, senses in NOUNS.items():
        assert meanings[noun] == {sense.chinese for sense in senses}
    for word, chinese in (*ADJECTIVES, *INTENSIFIERS):
        assert meanings[word] == {chinese}
    assert meanings["in"] == {"在", "里"}
    many = {word for word, found in meanings.items() if len(found) > 1}
    assert many == set(NOUNS) | NEAR


def test_a_later_word_decides_the_noun():
    decided, distances = {}, []
    for pair in EXAMPLES:
        for i, word in enumerate(pair.source):
            if word in NOUNS:
                near = next(k for k in range(i, len(pair.source)) if pair.source[k] in NEAR)
                (chinese,) = {pair.target[j] for k, j in pair.links if k == i}
                place = pair.source[near + 2]
                assert decided.setdefault((word, place), chinese) == chinese
                distances.append(near + 2 - i)
    assert len(decided) == sum(len(sense.places) for senses in NOUNS.values() for sense in senses)
    assert min(distances) == 3
    assert max(distances) >= 9


def test_intensifiers_never_vanish_and_articles_always_do():
    seen = 0
    for pair in EXAMPLES:
        for word, chinese in INTENSIFIERS:
            assert pair.source.count(word) == pair.target.count(chinese)
            seen += pair.source.count(word)
        linked = {i for i, _ in pair.links}
        assert {pair.source[i] for i in range(len(pair.source)) if i not in linked} <= {"a", "an", "the", "is"}
        for article, following in zip(pair.source, pair.source[1:], strict=False):
            if article in ("a", "an"):
                assert (article == "an") == (following[0] in "aeiou")
    assert seen > 500


# ---- all -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIR_TASKS)
def test_tasks_are_the_same_every_time_and_parts_share_no_source(name, tmp_path):
    data = f"{name}:count=400,seed=5"
    assert list(task_pairs(data)) == list(task_pairs(data)) != list(task_pairs(f"{name}:count=400,seed=6"))
    pairs = load_pairs(data, cache=tmp_path)
    sources = [set(part.source_lines) for part in (pairs.train, pairs.valid, pairs.test)]
    assert [len(lines) for lines in sources] == [360, 20, 20]
    assert len(set.union(*sources)) == 400


def test_arguments_that_cannot_be_are_refused():
    with pytest.raises(DataError, match="only 10 different examples were found, expected 11"):
        list(task_pairs("numbers:most=9,count=11"))
    with pytest.raises(DataError, match="numbers: count='many' is not an integer; write numbers:count=10"):
        task_pairs("numbers:count=many")
    with pytest.raises(DataError, match="count=0: expected 1 or more"):
        list(task_pairs("dates:count=0"))
    with pytest.raises(DataError, match="symbols=27: expected 1 to 26"):
        task_pairs("reversed:symbols=27")
    with pytest.raises(DataError, match=r"gramar: no such generated pairs; did you mean grammar\?"):
        task_pairs("gramar")


@pytest.mark.parametrize(
    "name",
    [
        "synthetic.number_words",
        "synthetic.pair_generators",
        "synthetic.grammar",
        "synthetic.shapes",
        "text.line_tokenizer",
    ],
)
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(f"recollect.data.{name}"), extraglobs={"rc": recollect})
    assert result.attempted > 0
    assert result.failed == 0


# ---- shapes --------------------------------------------------------------------------------------------

SIGNS = {"上方": "above", "下方": "below", "左边": "to the left of", "右边": "to the right of"}


def shape_of(mask):
    """Tell a shape by the share of its square that it fills."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    box = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    if box.all():
        return "square"
    if box[0].sum() == 1 and box[-1].all():
        return "triangle"
    return "circle" if box.mean() > 0.7 else "cross"


def seen_on(image):
    """Give what is on a picture, small before big, as (size, colour, shape, middle)."""
    found = []
    for colour, (_, value) in COLOURS.items():
        mask = (image == value).all(-1)
        if mask.any():
            rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
            size = "small" if rows[-1] - rows[0] < 10 else "big"
            middle = (columns[0] + columns[-1]) / 2, (rows[0] + rows[-1]) / 2
            found.append((size, colour, shape_of(mask), middle))
    return sorted(found, reverse=True)


def test_captions_say_what_is_seen():
    images, english, chinese = shapes(400, seed=3)
    assert images.shape == (400, 32, 32, 3)
    assert images.dtype == np.uint8
    assert (images[:, 0, 0].astype(int).sum(-1) > 0).all()
    relations = set()
    for image, caption, other in zip(images, english, chinese, strict=True):
        found = seen_on(image)
        names = re.findall(r"a (\w+) (\w+) (\w+)", caption)
        if len({colour for _, colour, _ in names}) < len(names):
            continue  # two of one colour are not told apart here
        assert [thing[:3] for thing in found] == names
        if len(found) == 2:
            (_, _, _, (x, y)), (_, _, _, (x_big, y_big)) = found
            is_level = abs(x - x_big) > abs(y - y_big)
            ways = ("to the left of", "to the right of") if is_level else ("above", "below")
            way = ways[0] if (x < x_big if is_level else y < y_big) else ways[1]
            assert f" {way} a " in caption
            assert SIGNS[other[-2:]] == way
            relations.add(way)
        assert [other.count(COLOURS[colour][0]) for _, colour, _ in names] == [1] * len(names)
    assert relations == set(SIGNS.values())


def test_pictures_are_the_same_every_time_and_none_twice():
    images, english, _ = shapes(300, seed=1)
    again, english_again, _ = shapes(300, seed=1)
    assert (images == again).all()
    assert english == english_again
    assert len({image.tobytes() for image in images}) == 300
    assert (images == np.array(GROUND, dtype=np.uint8)).all(-1).mean() > 0.4
