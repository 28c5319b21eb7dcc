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

BESIDE = ".data"  # of a file of ONNX: the weights that do not fit into it
Parts: TypeAlias = Mapping[str, Any]  # by file name: text, tensors by name, a tokenizer, or what writes to a path


def write_folder(run: Run, folder: Path, parts: Parts, compare: Callable[[Path], None]) -> Path:
    """Write files to a folder, and return it; nothing is left of files that `compare` refuses by raising.

    Raises a `FileError` for a folder that holds files of others, or is the run's own.
    """
    if (folder / "metrics.jsonl").exists() or folder == run.folder:
        raise FileError(f"{folder}: a run's own folder; nothing was overwritten; choose another --out")
    here = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    others = [name for name in here if name.removesuffix(BESIDE) not in parts]
    known = [name for name in here if name in parts]
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
        written = sorted(path.name for path in beside.iterdir())  # also what a part wrote beside itself
        for name in written:
            (beside / name).replace(folder / name)
        for name in set(here) - set(written):  # weights of an earlier, larger export
            (folder / name).unlink()
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
