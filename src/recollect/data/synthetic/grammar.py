"""A small English–Chinese grammar with known word alignments.

Three things in it make translation more than a list of words:

- an ambiguous noun is decided by a later word: `the magazine is stuck in the gun` is 弹匣 卡 在 枪 里, but in the bag
  it is 杂志; a relative clause moves the two apart;
- articles are dropped: `a`, `an` and `the` have no word in Chinese here;
- an intensifier is not: `very old` is 非常 旧, and leaving 非常 out changes the meaning.

Words of both languages are separated by blanks, so that the symbols of `space` are the words that the links join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from recollect.data.synthetic.draw import check_size, distinct, pick

Word = tuple[str, str]  # English, Chinese


@dataclass(frozen=True)
class Sense:
    """One meaning of a noun, and the places that select it."""

    chinese: str
    places: tuple[Word, ...]


NOUNS: dict[str, tuple[Sense, Sense]] = {
    "magazine": (
        Sense("弹匣", (("gun", "枪"), ("rifle", "步枪"), ("pistol", "手枪"))),
        Sense("杂志", (("bag", "包"), ("drawer", "抽屉"), ("bookshop", "书店"))),
    ),
    "bank": (
        Sense("河岸", (("river", "河"), ("stream", "小溪"), ("ferry", "渡船"))),
        Sense("银行", (("market", "市场"), ("office", "办公室"), ("station", "车站"))),
    ),
    "bat": (
        Sense("蝙蝠", (("cave", "山洞"), ("attic", "阁楼"), ("ruin", "废墟"))),
        Sense("球棒", (("gym", "体育馆"), ("stadium", "球场"), ("locker", "储物柜"))),
    ),
    "crane": (
        Sense("鹤", (("marsh", "沼泽"), ("pond", "池塘"), ("reed", "芦苇"))),
        Sense("起重机", (("harbour", "港口"), ("tower", "塔楼"), ("factory", "工厂"))),
    ),
    "mouse": (
        Sense("老鼠", (("cheese", "奶酪"), ("barn", "谷仓"), ("trap", "捕鼠器"))),
        Sense("鼠标", (("keyboard", "键盘"), ("screen", "屏幕"), ("printer", "打印机"))),
    ),
    "seal": (
        Sense("海豹", (("ice", "冰"), ("beach", "海滩"), ("iceberg", "冰山"))),
        Sense("印章", (("letter", "信"), ("contract", "合同"), ("desk", "书桌"))),
    ),
    "spring": (
        Sense("泉水", (("valley", "山谷"), ("rock", "岩石"), ("forest", "森林"))),
        Sense("弹簧", (("clock", "时钟"), ("mattress", "床垫"), ("engine", "发动机"))),
    ),
    "ruler": (
        Sense("统治者", (("palace", "宫殿"), ("throne", "王座"), ("fortress", "堡垒"))),
        Sense("尺子", (("notebook", "笔记本"), ("pencil", "铅笔"), ("classroom", "教室"))),
    ),
}
ADJECTIVES: tuple[Word, ...] = (
    ("old", "旧"),
    ("small", "小"),
    ("big", "大"),
    ("white", "白"),
    ("black", "黑"),
    ("dirty", "脏"),
    ("strange", "奇怪"),
    ("ugly", "丑"),
    ("wet", "湿"),
    ("important", "重要"),
)
INTENSIFIERS: tuple[Word, ...] = (("very", "非常"), ("rather", "相当"), ("too", "太"), ("extremely", "极其"))
PEOPLE: tuple[Word, ...] = (
    ("teacher", "老师"),
    ("doctor", "医生"),
    ("farmer", "农民"),
    ("girl", "女孩"),
    ("boy", "男孩"),
    ("neighbour", "邻居"),
    ("artist", "画家"),
    ("engineer", "工程师"),
)
FINDINGS: tuple[Word, ...] = (
    ("found", "发现"),
    ("noticed", "注意到"),
    ("described", "描述"),
    ("mentioned", "提到"),
    ("liked", "喜欢"),
    ("photographed", "拍摄"),
)
TIMES: tuple[Word, ...] = (("yesterday", "昨天"), ("today", "今天"), ("recently", "最近"), ("often", "经常"))
STATES: tuple[Word, ...] = (("stuck", "卡"), ("hidden", "藏"), ("lost", "丢"), ("left", "留"))
NEAR: tuple[Word, ...] = (("in", "里"), ("beside", "旁边"), ("under", "下面"), ("behind", "后面"))


@dataclass(frozen=True)
class Aligned:
    """A pair of sentences, and which words belong together: (place in the source, place in the target)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Phrase:
    """Words of a source sentence, and those of the target with the places in `source` that they came from."""

    source: tuple[str, ...] = ()
    target: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def moved(self, by: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the target with its source places moved by the `by` words before this phrase."""
        return tuple((word, tuple(place + by for place in places)) for word, places in self.target)


def grammar(clauses: int = 1, count: int = 20_000, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield `the bat is hidden in a cave .` and `蝙蝠 藏 在 山洞 里 。`: up to `clauses` clauses, joined by `and`."""
    return ((" ".join(pair.source), " ".join(pair.target)) for pair in aligned_grammar(clauses, count, seed))


def aligned_grammar(clauses: int = 1, count: int = 20_000, seed: int = 0) -> Iterator[Aligned]:
    """Yield the pairs of `grammar` in words, with their links, as the reference for the alignment error rate.

    Words that have no counterpart have no link: articles, forms of `be`, 的 after an adjective, and 很, which Chinese
    puts before an adjective without an intensifier.

    >>> pair = next(aligned_grammar(seed=1))
    >>> all(pair.source[i] not in ("a", "an", "the") for i, j in pair.links)
    True
    """
    check_size("clauses", clauses)

    def example(rng: Random) -> Aligned:
        parts = [_clause(rng)]
        while len(parts) < clauses and rng.random() < 0.5:
            parts += [Phrase(("and",), (("而且", (0,)),)), _clause(rng)]
        return _aligned([*parts, Phrase((".",), (("。", (0,)),))])

    return distinct(example, count, seed)


def _clause(rng: Random) -> Phrase:
    noun = pick(rng, list(NOUNS))
    sense = pick(rng, NOUNS[noun])
    word, place, near = (noun, sense.chinese), pick(rng, sense.places), pick(rng, NEAR)
    if rng.random() < 0.5:
        return _is_there(rng, word, place, near)
    return _is_so(rng, word, place, near)


def _is_there(rng: Random, noun: Word, place: Word, near: Word) -> Phrase:
    """The very old bat that the girl found is hidden in the cave: 女孩 发现 的 非常 旧 的 蝙蝠 藏 在 山洞 里."""
    adjective = _degree(rng, 0.3) if rng.random() < 0.5 else Phrase()
    relative = _relative(rng) if rng.random() < 0.5 else Phrase()
    article = _article(rng, (*adjective.source, noun[0])[0])
    state, where = pick(rng, STATES), _where(rng, place, near)
    source = [(article,), adjective.source, (noun[0],), relative.source, ("is", state[0]), where.source]
    starts = _starts(source)
    target = (
        relative.moved(starts[3])
        + adjective.moved(starts[1])
        + ((("的", ()),) if adjective.target else ())
        + ((noun[1], (starts[2],)), (state[1], (starts[4] + 1,)), ("在", (starts[5],)))
        + where.moved(starts[5])
    )
    return Phrase(sum(source, ()), target)


def _is_so(rng: Random, noun: Word, place: Word, near: Word) -> Phrase:
    """The bat in the cave is very old: 山洞 里 的 蝙蝠 非常 旧."""
    where, degree = _where(rng, place, near), _degree(rng, 0.7)
    source = [(_article(rng, noun[0]),), (noun[0],), where.source, ("is",), degree.source]
    starts = _starts(source)
    bare = (("很", ()),) if len(degree.source) == 1 else ()
    target = (*where.moved(starts[2]), ("的", ()), (noun[1], (starts[1],)), *bare, *degree.moved(starts[4]))
    return Phrase(sum(source, ()), target)


def _where(rng: Random, place: Word, near: Word) -> Phrase:
    return Phrase((near[0], _article(rng, place[0]), place[0]), ((place[1], (2,)), (near[1], (0,))))


def _degree(rng: Random, share: float) -> Phrase:
    """Return an adjective, with an intensifier before it in this share of the cases."""
    words = [pick(rng, INTENSIFIERS)] if rng.random() < share else []
    words.append(pick(rng, ADJECTIVES))
    return Phrase(tuple(e for e, _ in words), tuple((c, (i,)) for i, (_, c) in enumerate(words)))


def _relative(rng: Random) -> Phrase:
    """That the girl found yesterday: 女孩 昨天 发现 的."""
    person, finding = pick(rng, PEOPLE), pick(rng, FINDINGS)
    source, target = ["that", "the", person[0], finding[0]], [(person[1], (2,)), (finding[1], (3,)), ("的", (0,))]
    if rng.random() < 0.5:
        time = pick(rng, TIMES)
        source.append(time[0])
        target.insert(1, (time[1], (4,)))
    return Phrase(tuple(source), tuple(target))


def _article(rng: Random, following: str) -> str:
    return "the" if rng.random() < 0.6 else "an" if following[0] in "aeiou" else "a"


def _starts(parts: list[tuple[str, ...]]) -> list[int]:
    return [sum(map(len, parts[:number])) for number in range(len(parts))]


def _aligned(phrases: list[Phrase]) -> Aligned:
    """Return the sentence of some phrases."""
    starts = _starts([phrase.source for phrase in phrases])
    source = tuple(word for phrase in phrases for word in phrase.source)
    target = [word for phrase, start in zip(phrases, starts, strict=True) for word in phrase.moved(start)]
    links = frozenset((i, j) for j, (_, places) in enumerate(target) for i in places)
    return Aligned(source, tuple(word for word, _ in target), links)
