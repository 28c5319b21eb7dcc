"""Our tokenizers as those of the tokenizers library, so that other programs can read them: the same ids."""

from __future__ import annotations

from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from recollect.data.error import DataError
from recollect.data.text.framed import BEGIN, END, MARKS, MASK, FramedTokenizer
from recollect.data.text.pretrained_tokenizer import PretrainedTokenizer
from recollect.data.text.tokenizer import UNKNOWN, Tokenizer

BREAKS = r"\r\x0b\x0c\x1c-\x1e\x{85}\x{2028}\x{2029}"  # where str.splitlines divides, beside \n
PARTS = {  # what is one symbol
    "char": r"[\s\S]",
    "word": rf"\n| ?[^ \n{BREAKS}]*(?:\r(?!\n)|[\x0b\x0c\x1c-\x1e\x{{85}}\x{{2028}}\x{{2029}}])|"
    rf" [^ \n{BREAKS}]*\r?|[^ \n{BREAKS}]+\r?|\r",
    "space": r"\n|[^\s]+",
}


def as_pretrained(tokenizer: Tokenizer | FramedTokenizer | PretrainedTokenizer) -> PretrainedTokenizer:
    """Return a tokenizer of ours as a `PretrainedTokenizer` that gives the same ids."""
    base = tokenizer.base if isinstance(tokenizer, FramedTokenizer) else tokenizer
    if isinstance(base, PretrainedTokenizer):
        return base
    if not isinstance(base, Tokenizer):
        raise DataError(f"tokenizer: got a {type(base).__name__}, expected a Tokenizer or a PretrainedTokenizer")
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if base.kind in UNKNOWN:
        settings["unk_token"] = UNKNOWN[base.kind]
    backend = backend_of(base)
    if isinstance(tokenizer, FramedTokenizer):
        settings |= {"mask_token": MASK, "cls_token": BEGIN, "sep_token": END}
        settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        add_marks(backend, is_spaced=base.kind in ("word", "bpe"))
    return PretrainedTokenizer(backend, settings)


def add_marks(backend: tokenizers.Tokenizer, *, is_spaced: bool) -> None:
    """Add the marks of a `FramedTokenizer`, the next ids; where `is_spaced`, [MASK] takes the blank before it."""
    backend.add_special_tokens([AddedToken(mark, lstrip=is_spaced and mark == MASK) for mark in MARKS])
    ids = [(mark, backend.token_to_id(mark)) for mark in (BEGIN, END)]
    pair = f"{BEGIN} $A {END} $B:1 {END}:1"
    backend.post_processor = TemplateProcessing(single=f"{BEGIN} $A {END}", pair=pair, special_tokens=ids)


def backend_of(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Return the tokenizers library's form of a tokenizer."""
    if tokenizer._pairs is not None:
        return tokenizers.Tokenizer.from_str(tokenizer._pairs.to_str())
    if tokenizer.kind == "byte":
        return _bytes()
    symbols = tokenizer.symbols
    unknown = UNKNOWN[tokenizer.kind]
    ids = {symbol: i for i, symbol in enumerate(symbols)}
    ids.setdefault(unknown, tokenizer.vocab_size - 1)
    found = tokenizers.Tokenizer(models.WordLevel(ids, unknown))
    behavior = "isolated" if tokenizer.kind != "space" else "removed"
    is_space = tokenizer.kind == "space"
    found.pre_tokenizer = pre_tokenizers.Split(Regex(PARTS[tokenizer.kind]), behavior, invert=is_space)
    if not is_space:
        found.decoder = decoders.Fuse()  # without one, symbols are joined by blanks
    return found


def _bytes() -> tokenizers.Tokenizer:
    """Return byte pairs without a pair: the 256 bytes, each under the letter that the library shows it as."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    found = tokenizers.Tokenizer(models.BPE({letters[byte]: byte for byte in range(256)}, []))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = decoders.ByteLevel()
    return found
