"""A tokenizer of any kind from its file: ours, ours with marks, and somebody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

from recollect.data.error import DataError
from recollect.data.text.framed import FramedTokenizer
from recollect.data.text.pretrained_tokenizer import FORMAT as PRETRAINED, PretrainedTokenizer
from recollect.data.text.tokenizer import FORMAT, Tokenizer

AnyTokenizer: TypeAlias = Tokenizer | FramedTokenizer | PretrainedTokenizer


def tokenizer_of(content: dict[str, Any], path: Path) -> AnyTokenizer:
    """Return the tokenizer of plain data that `path` holds."""
    try:
        if content["format"] not in (FORMAT, PRETRAINED):
            raise DataError(f"{path}: not a tokenizer of this version")
        base = (PretrainedTokenizer if content["format"] == PRETRAINED else Tokenizer).of_content(content)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error
    return FramedTokenizer(base) if "marks" in content else base


def load_tokenizer(path: str | Path) -> AnyTokenizer:
    """Read a tokenizer of any kind."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged or not a tokenizer ({error})") from error
    return tokenizer_of(content, Path(path))
