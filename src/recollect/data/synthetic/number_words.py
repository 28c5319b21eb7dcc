"""Integers in words: English and Chinese, from 0 to below ten million."""

from __future__ import annotations

MOST = 9_999_999
FIRST_TEN = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEENS = ("thir", "four", "fif", "six", "seven", "eigh", "nine")
SMALL = (*FIRST_TEN, "ten", "eleven", "twelve", *(f"{stem}teen" for stem in TEENS))
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
HAN_DIGITS = "零一二三四五六七八九"


def english_words(number: int) -> str:
    """Return a number's English words.

    >>> english_words(1_042_310)
    'one million forty-two thousand three hundred ten'
    """
    _check(number)
    if number == 0:
        return SMALL[0]
    groups = ((number // 1_000_000, " million"), (number // 1000 % 1000, " thousand"), (number % 1000, ""))
    return " ".join(_below_thousand(group) + unit for group, unit in groups if group)


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{SMALL[hundreds]} hundred"] if hundreds else []
    tens, ones = divmod(rest, 10)
    if rest >= 20:
        words.append(TENS[tens] + (f"-{SMALL[ones]}" if ones else ""))
    elif rest:
        words.append(SMALL[rest])
    return " ".join(words)


def chinese_words(number: int) -> str:
    """Return a number's Chinese words, in groups of four digits.

    >>> chinese_words(1_042_310), chinese_words(20_005), chinese_words(15)
    ('一百零四万二千三百一十', '二万零五', '十五')
    """
    _check(number)
    high, low = divmod(number, 10_000)
    if not high:
        words = _below_myriad(low) or HAN_DIGITS[0]
    else:
        bridge = HAN_DIGITS[0] if 0 < low < 1000 else ""
        words = f"{_below_myriad(high)}万{bridge}{_below_myriad(low)}"
    return words.removeprefix("一") if words.startswith("一十") else words


def _below_myriad(number: int) -> str:
    """Return up to four digits; zeros between others are written once, those at the end not at all."""
    words = ""
    for digit, unit in zip(f"{number:04}", ("千", "百", "十", ""), strict=True):
        if digit != "0":
            words += HAN_DIGITS[int(digit)] + unit
        elif words and not words.endswith(HAN_DIGITS[0]):
            words += HAN_DIGITS[0]
    return words.rstrip(HAN_DIGITS[0])


def _check(number: int) -> None:
    if not 0 <= number <= MOST:
        raise ValueError(f"number: got {number}, expected 0 to {MOST}")
