"""A run as a folder of Hugging Face, which transformers loads without custom code."""

from __future__ import annotations

from pathlib import Path

from recollect.core.serialize import FileError
from recollect.models.language import LanguageModel
from recollect.pretrained.checkpoint import find_format, is_made_here
from recollect.pretrained.load import save_pretrained
from recollect.runs.run import Run

AS_GPT2 = "--set max_length=512 --set head_bias=false"  # the settings of a transformer that GPT-2 has


def export_run(run: Run, out: str | Path | None = None) -> Path:
    """Write a run's model and tokenizer, by default to RUN/hf, and return the folder.

    Raises a ValueError with the reason where transformers has no such model, and a `FileError` for a folder that holds
    other files.
    """
    folder = Path(out) if out is not None else run.folder / "hf"
    try:
        find_format(run.model)
    except ValueError as error:
        other = f"of language models there are other formats: recollect export {run.folder} --to onnx"
        family = getattr(getattr(run.model, "config", None), "family", None)
        if isinstance(run.model, LanguageModel) and family == "transformer":
            other = f"train one that it has with: recollect train TEXT -m transformer {AS_GPT2}; {other}"
        raise ValueError(f"{run.folder}: {error}; {other}") from None
    if (folder / "metrics.jsonl").exists() or folder == run.folder:
        raise FileError(f"{folder}: a run's own folder; nothing was overwritten; choose another --out")
    if folder.is_dir() and any(folder.iterdir()) and not is_made_here(folder):
        raise FileError(f"{folder}: holds other files; nothing was overwritten; choose another --out")
    save_pretrained(run.model, folder, run.tokenizer)
    return folder
