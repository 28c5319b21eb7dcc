"""Scripts that are written without spaces: their sentences must not be taken for words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from recollect.data.error import DataError

ENOUGH = 100_000  # characters that are looked at
HAN = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
HAN_LETTER = "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in HAN) + "]"
DENSE = re.compile("[\u3040-\u30ff" + HAN_LETTER[1:])  # Han and kana: a word has about 1.5 letters
LOOSE = re.compile("[\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff]")  # Thai, Lao, Tibetan, Burmese, Khmer: about 4
SHARE = 0.3  # of a text's characters, from which its script decides
MOST = 3.0  # words between two spaces, on average, in a text that is divided by spaces


def checked(kind: str, texts: Iterable[str]) -> Iterator[str]:
    """Return the texts; raise a DataError where `kind` divides at spaces and the script has none.

    Text that was divided into words before, by spaces, has about one word between two spaces and is accepted.
    """
    texts = iter(texts)
    seen: list[str] = []
    size = 0
    for text in texts:
        seen.append(text)
        size += len(text)
        if size >= ENOUGH:
            break
    words, share = words_between_spaces("".join(seen)[:ENOUGH])
    if share > SHARE and words > MOST:
        raise DataError(
            f"tokenizer: got {kind}, which divides at spaces, but {share:.0%} of the text is in a script without them: "
            f"a symbol would hold {words:.0f} words on average; write --tokenizer char"
        )
    return chain(seen, texts)


def words_between_spaces(text: str) -> tuple[float, float]:
    """Return how many words of scripts without spaces stand between two spaces, and the share of their letters."""
    parts = text.split()
    counts = [(len(DENSE.findall(part)), len(LOOSE.findall(part))) for part in parts]
    words = [dense / 1.5 + loose / 4 for dense, loose in counts if dense or loose]
    letters = sum(map(sum, counts))
    return sum(words) / max(len(words), 1), letters / max(sum(map(len, parts)), 1)
