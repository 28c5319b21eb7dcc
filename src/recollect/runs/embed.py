"""Vectors of texts, from a run or from somebody else's model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from recollect.pretrained.checkpoint import is_checkpoint
from recollect.pretrained.load import Pretrained, from_pretrained
from recollect.runs.run import Run, load


def open_model(folder: str | Path, *, device: str = "auto") -> Run | Pretrained:
    """Return a run, or a model in the layout of Hugging Face, by its folder."""
    if is_checkpoint(Path(folder)):
        return from_pretrained(folder, device=device)
    return load(folder, device=device)


def embed(source: str | Path | Run | Pretrained, texts: Sequence[str]) -> Tensor:
    """Return one vector for each text, (N, D): of a run, of a pretrained model, or of the folder of either.

    The features of a text's symbols are averaged and normalised to length 1, or pooled as the files of
    sentence-transformers in the folder say; then the dot product of two vectors is their cosine.

    >>> import tempfile
    >>> run = rc.train("recall:count=200", model="gru", budget="1steps", out=tempfile.mkdtemp() + "/run")
    >>> vectors = rc.embed(run, ["ab", "ba"])
    >>> len(vectors), [round(float(v.norm()), 4) for v in vectors]
    (2, [1.0, 1.0])
    """
    if isinstance(texts, str):
        raise ValueError(f"texts: got {texts!r}, expected a list of texts")
    opened = open_model(source) if isinstance(source, str | Path) else source
    return opened.embed(texts)
