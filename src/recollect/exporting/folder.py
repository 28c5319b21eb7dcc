"""A folder of exported files: written beside its place, compared with the model, and only then moved there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from recollect.core.serialize import FileError, write_file, write_tensors
from recollect.data.text.tokenizer_backend import as_pretrained
from recollect.runs.run import Run

Parts: TypeAlias = Mapping[str, Any]  # by file name: text, tensors by name, a tokenizer, or what writes to a path


def write_folder(run: Run, folder: Path, parts: Parts, compare: Callable[[Path], None]) -> Path:
    """Write files to a folder, and return it; nothing is left of files that `compare` refuses by raising.

    Raises a `FileError` for a folder that holds files of others, or is the run's own.
    """
    if (folder / "metrics.jsonl").exists() or folder == run.folder:
        raise FileError(f"{folder}: a run's own folder; nothing was overwritten; choose another --out")
    others = sorted(path.name for path in folder.iterdir() if path.name not in parts) if folder.is_dir() else []
    known = sorted(path.name for path in folder.iterdir() if path.name in parts) if folder.is_dir() else []
    if others or 0 < len(known) < len(parts):  # all of them: an earlier export
        name = (others or known)[0]
        raise FileError(f"{folder}: holds other files ({name}); nothing was overwritten; choose another --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        for name, content in parts.items():
            _write(beside / name, content)
        compare(beside)
        folder.mkdir(exist_ok=True)
        for name in parts:
            (beside / name).replace(folder / name)
    finally:
        shutil.rmtree(beside)
    return folder


def _write(path: Path, content: Any) -> None:
    if isinstance(content, str):
        write_file(path, content.encode())
    elif callable(content):
        content(str(path))
    elif isinstance(content, Mapping):
        write_tensors({name: _own(t) for name, t in content.items()}, path, {"format": "pt"})
    else:
        write_file(path, as_pretrained(content).backend.to_str().encode())


def _own(t: Tensor) -> Tensor:
    """Return a tensor that shares no storage, as safetensors requires."""
    return t.detach().cpu().contiguous().clone()
