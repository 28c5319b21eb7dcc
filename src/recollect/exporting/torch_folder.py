"""A recurrent language model with `torch.nn`'s names, and a script that runs it without this package.

model.safetensors     embedding.weight, rnn.weight_ih_l0 …, head.weight …: the state of nn.Embedding, nn.LSTM, nn.Linear
tokenizer.json        symbols to ids and back, as the tokenizers library reads it
generate.py           a greedy generator in 30 lines that needs torch and no recollect

The folder is kept only if the modules of torch compute what the model computes.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.compose import Stack
from recollect.core.serialize import read_tensors
from recollect.exporting.exporter import ExportError
from recollect.exporting.folder import Parts, write_folder
from recollect.exporting.scripts import torch_script
from recollect.layers.recurrent.torch_bridge import to_torch
from recollect.models.language import RECURRENT
from recollect.runs.run import Run

TOLERANCE = 1e-5  # of a logit, relative to 1 + |logit|


def export_torch(run: Run, out: str | Path | None = None) -> Path:
    """Write a run's weights and script to a folder, by default RUN/torch, and return the folder.

    Raises an `ExportError` for a family whose layers are no modules of torch.nn.
    """
    config = run.config()
    if config.task != "language" or config.family not in RECURRENT:
        raise ExportError(
            f"{run.folder}: a {config.family} of task {config.task} is not made of torch.nn's layers; torch holds "
            f"language models of {', '.join(RECURRENT)}; another format: recollect export {run.folder} --to onnx"
        )
    model = deepcopy(run.model).to("cpu").float()  # the run keeps its own
    modules = modules_of(model)
    parts: Parts = {
        "model.safetensors": modules.state_dict(),
        "tokenizer.json": run.tokenizer,
        "generate.py": torch_script(modules, run.tokenizer.unseen),
    }
    return write_folder(run, Path(out) if out else run.folder / "torch", parts, lambda at: _compare(model, modules, at))


def modules_of(model: Any) -> nn.ModuleDict:
    """Return the layers of a recurrent language model as modules of torch.nn."""
    body: Stack = model.body
    rnn = to_torch(Stack(*(layer for layer in body if type(layer) in RECURRENT.values())))
    embedding: Any = body[0]
    return nn.ModuleDict({"embedding": embedding.table, "rnn": rnn, "head": model.head}).eval()


@torch.no_grad()
def _compare(model: Any, modules: nn.ModuleDict, folder: Path) -> None:
    """Raise an `ExportError` unless modules with the weights that were written compute the model's logits."""
    written = deepcopy(modules)
    written.load_state_dict(read_tensors(folder / "model.safetensors")[1])
    ids = torch.randint(model.vocab_size, (2, 32), generator=torch.Generator().manual_seed(0))
    expected: Tensor = model(ids)[0]  # (B, T, V)
    found = written["head"](written["rnn"](written["embedding"](ids))[0])
    worst = ((found - expected).abs() / (1 + expected.abs())).max().item()
    if not worst <= TOLERANCE:
        raise ExportError(f"torch: logits differ by {worst:.1e}, expected at most {TOLERANCE:.0e}")
