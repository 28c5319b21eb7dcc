"""The tokenizer of somebody else's model: tokenizer.json of Hugging Face, or the vocabulary files before it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from recollect.core.serialize import write_file
from recollect.data.error import DataError
from recollect.data.text.tokenizer import Ids

EXPECTED = "tokenizer.json, vocab.txt (WordPiece), or vocab.json and merges.txt (byte pairs)"
SETTINGS = "tokenizer_config.json"
FORMAT = "recollect-pretrained-tokenizer"  # of the file in a run


class PretrainedTokenizer:
    """Tokenises as the model was trained, with the symbols it puts around a text, such as [CLS] and [SEP].

    >>> backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, "[UNK]"))
    >>> backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    >>> rc.PretrainedTokenizer(backend).encode("a b c").tolist()
    [1, 2, 0]
    """

    kind = "pretrained"
    unseen: tuple[int, ...] = ()  # any id may be generated
    unknown: int | None = None  # an unknown symbol is one like any other

    def __init__(self, backend: tokenizers.Tokenizer, settings: dict[str, Any] | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.settings = settings or {}  # of tokenizer_config.json

    @classmethod
    def load(cls, folder: str | Path) -> PretrainedTokenizer:
        """Read a folder's tokenizer; raise a `DataError` where there is none."""
        folder = Path(folder)
        path = folder / SETTINGS
        try:
            settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            if (folder / "tokenizer.json").is_file():
                return cls(tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), settings)
            if (folder / "vocab.txt").is_file():
                return cls(_word_pieces(folder / "vocab.txt", settings), settings)
            if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
                return cls(_byte_pairs(folder), settings)
        except Exception as error:  # tokenizers raises Exception itself
            raise DataError(f"{folder}: its tokenizer cannot be read ({error})") from error
        if (folder / "tokenizer.model").is_file():
            convert = "convert it with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            raise DataError(f"{folder / 'tokenizer.model'}: a SentencePiece model, expected {EXPECTED}; {convert}")
        raise DataError(f"{folder}: has no tokenizer, expected {EXPECTED}")

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return int(self.backend.get_vocab_size())

    def id_of(self, symbol: str) -> int:
        """Return the id of a symbol, such as [MASK]; raise a `DataError` where there is none."""
        found = self.backend.token_to_id(symbol)
        if found is None:
            raise DataError(f"{symbol}: not a symbol of this tokenizer")
        return int(found)

    @property
    def special(self) -> list[int]:
        """The ids of symbols that are no text, such as [CLS] and [PAD]."""
        return [int(i) for i, token in self.backend.get_added_tokens_decoder().items() if token.special]

    def encode(self, text: str, *, strict: bool = False, most: int | None = None) -> Ids:
        """Return the ids, of at most `most` symbols those around the text included; `strict` changes nothing."""
        return np.array(self._encoded(text, most).ids, dtype=np.int64)

    def encode_part(self, text: str) -> Ids:
        """Return the ids of a part of a text, without the symbols around it."""
        return np.array(self.backend.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def unknown_in(self, text: str) -> Counter[str]:
        """Return no symbols: every text has ids."""
        return Counter()

    def count_unknown(self, text: str, ids: Ids) -> int:
        """Return 0: every text has ids."""
        return 0

    def _encoded(self, text: str, most: int | None) -> tokenizers.Encoding:
        found = self.backend.encode(text)
        if most is None or len(found.ids) <= most:
            return found
        self.backend.enable_truncation(most)
        try:
            return self.backend.encode(text)
        finally:
            self.backend.no_truncation()

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text, without special symbols."""
        text: str = self.backend.decode([int(i) for i in ids])
        return text

    def stream(self, after: str = "") -> ContinuedDecoder:
        """Return a decoder that continues a text id by id."""
        return ContinuedDecoder(self, after)

    def content(self) -> dict[str, Any]:
        """Return what a run saves, as plain data."""
        return {"format": FORMAT, "backend": json.loads(self.backend.to_str()), "settings": self.settings}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> PretrainedTokenizer:
        """Return the tokenizer of what a run saved."""
        return cls(tokenizers.Tokenizer.from_str(json.dumps(content["backend"])), content["settings"])

    def save(self, place: str | Path) -> None:
        """Write tokenizer.json and tokenizer_config.json to a folder; or all to one file of a run, NAME.json."""
        target = Path(place)
        if target.suffix == ".json":
            write_file(target, json.dumps(self.content(), ensure_ascii=False).encode())
            return
        write_file(target / "tokenizer.json", self.backend.to_str().encode())
        write_file(target / SETTINGS, json.dumps(self.settings, ensure_ascii=False, indent=1).encode() + b"\n")


class ContinuedDecoder:
    """Decodes id by id after a text, so that the blank before a word appears where one belongs."""

    def __init__(self, tokenizer: PretrainedTokenizer, after: str) -> None:
        self._backend = tokenizer.backend
        self._decoding = tokenizers.decoders.DecodeStream(skip_special_tokens=True)
        for id in tokenizer.encode(after):
            self.step(int(id))

    def step(self, id: int) -> str | None:
        """Return the text that is complete with this id, None if there is none."""
        chunk: str | None = self._decoding.step(self._backend, int(id))
        return chunk


def _word_pieces(path: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """Return BERT's tokenizer of a vocabulary, one symbol a line."""
    symbols = path.read_text(encoding="utf-8").splitlines()
    ids = {symbol: i for i, symbol in enumerate(symbols)}
    unknown, first, last = (settings.get(f"{name}_token", f"[{name.upper()}]") for name in ("unk", "cls", "sep"))
    found = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=unknown))
    found.normalizer = tokenizers.normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
    )
    found.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    found.post_processor = tokenizers.processors.BertProcessing((last, ids[last]), (first, ids[first]))
    found.decoder = tokenizers.decoders.WordPiece()
    found.add_special_tokens([one for one in (unknown, first, last, "[PAD]", "[MASK]") if one in ids])
    return found


def _byte_pairs(folder: Path) -> tokenizers.Tokenizer:
    """Return GPT-2's tokenizer of a vocabulary and its merges."""
    model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    found = tokenizers.Tokenizer(model)
    found.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = tokenizers.decoders.ByteLevel()
    end = "<|endoftext|>"
    found.add_special_tokens([end] if found.token_to_id(end) is not None else [])
    return found
