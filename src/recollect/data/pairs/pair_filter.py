"""Which pairs enter which part: none that is useless for training, and no source in two parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from recollect.data.error import DataError
from recollect.data.pairs.pair_rows import Encoded
from recollect.data.synthetic.pair_generators import Lines

PARTS = ("train", "valid", "test")
SHARE = 20  # one source in SHARE is held out for each part


class Division:
    """The part of each pair, decided by the hash of its source.

    The order of the lines changes nothing, and a source with several targets is in one part with all of them. The
    first sources by hash are the test part's, so that it is the same with a given validation part. Pairs with an empty
    side are the training part's, which leaves them out.
    """

    def __init__(self, pairs: Iterable[Lines], held_out: Sequence[str], name: str) -> None:
        hashes = sorted({_hash_source(source) for source, target in pairs if source.strip() and target.strip()})
        if len(hashes) <= len(held_out):
            expected = f"expected {len(held_out) + 1} or more for {', '.join(['train', *held_out])}"
            raise DataError(f"{name}: got {len(hashes)} different sources with a target, {expected}")
        count = max(round(len(hashes) / SHARE), 1)
        self._parts = dict[bytes, str]()  # of what is held out
        for number, part in enumerate(sorted(held_out)):  # test before valid
            self._parts |= dict.fromkeys(hashes[number * count : (number + 1) * count], part)

    def part_of(self, pair: Lines) -> str:
        """Return the name of a pair's part."""
        has_text = bool(pair[0].strip() and pair[1].strip())
        return self._parts.get(_hash_source(pair[0]), "train") if has_text else "train"


def _hash_source(source: str) -> bytes:
    """Return the hash of a source, whatever its case and blanks."""
    return hashlib.blake2b(" ".join(source.lower().split()).encode(), digest_size=12).digest()


class Sieve:
    """Filters pairs for each part, and counts those that it drops."""

    def __init__(self, limit: int | None, lowercase: bool) -> None:
        self.limit, self.lowercase = limit, lowercase
        self.seen = set[bytes]()  # hashes of the pairs that were kept
        self.counts = dict[str, int]()  # by the text of the notice

    def training(self, pairs: Iterator[Encoded]) -> Iterator[Encoded]:
        """Yield all pairs but those with an empty side and those that are too long."""
        for pair in pairs:
            if not (pair[1].strip() and pair[3].strip()):
                self._count("left out, one side is empty")
            elif self._is_long(pair):
                self._count(f"left out, longer than {self.limit} symbols")
            else:
                self.seen.add(self._hash(pair))
                yield pair

    def held_out(self, pairs: Iterator[Encoded], is_given: bool) -> Iterator[Encoded]:
        """Yield all pairs but those of an earlier part; a given file is kept complete, so that scores compare."""
        new = set[bytes]()  # within a part a pair may be repeated
        for pair in pairs:
            if self._hash(pair) in self.seen:
                self._count("also in what came before, kept as given" if is_given else "left out, came before")
                if not is_given:
                    continue
            if self._is_long(pair):
                self._count(f"longer than {self.limit} symbols, kept: only training leaves them out")
            new.add(self._hash(pair))
            yield pair
        self.seen |= new

    def notices(self) -> list[str]:
        """Return the notices, and reset the counts."""
        counts, self.counts = self.counts, {}
        return [f"{count} {'pair' if count == 1 else 'pairs'} {what}" for what, count in counts.items()]

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _is_long(self, pair: Encoded) -> bool:
        return self.limit is not None and max(len(pair[0]), len(pair[2])) > self.limit

    def _hash(self, pair: Encoded) -> bytes:
        both = "\t".join(" ".join(line.split()) for line in (pair[1], pair[3]))
        return hashlib.blake2b((both.lower() if self.lowercase else both).encode(), digest_size=12).digest()
