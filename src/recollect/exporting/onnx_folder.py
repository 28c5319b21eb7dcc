"""A run as ONNX: one step of the model, with the memory as named inputs and outputs.

model.onnx            (token, *memory) -> (logits, *next memory), for any batch; its weights lie in model.onnx.data
                      where they are too large for one file
whole.onnx            tokens -> logits, for any batch and length, of families without a loop over time
memory.safetensors    the memory before the first symbol, by the names of the inputs, for a batch of one
tokenizer.json        symbols to ids and back, as the tokenizers library reads it
generate.py           a greedy generator in 30 lines that needs onnxruntime and no recollect

The files are kept only if ONNX Runtime computes what the model computes.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recollect.core.memory import Memory
from recollect.exporting.exporter import ExportError as ExportError, as_program
from recollect.exporting.folder import write_folder
from recollect.exporting.scripts import onnx_script
from recollect.exporting.step_form import StepForm, growing_axes
from recollect.exporting.whole_form import PARALLEL, differences, whole_program
from recollect.runs.run import Run

STEPS = 24  # compared before the file is kept
TOLERANCE = 1e-4  # of a logit, relative to 1 + |logit|
PACKAGES = "pip install 'recollect[onnx]'"


def export_onnx(run: Run, out: str | Path | None = None) -> Path:
    """Write a run's step form, and its whole form if there is one, to a folder, by default RUN/onnx, and return it.

    Raises an `ExportError` for a model without a step form, and where ONNX Runtime differs from the model.
    """
    _need_packages()
    model = _steps_of(run)
    memory = _sample_memory(model)
    program = as_program(run, lambda: _program(model, memory))
    start = model.initial_memory(1)
    parts: dict[str, Any] = {
        "model.onnx": lambda path: program.save(path),
        "memory.safetensors": start.tensors(),
        "tokenizer.json": run.tokenizer,
        "generate.py": onnx_script(run.tokenizer.unseen),
    }
    if run.config().family in PARALLEL:
        whole = as_program(run, lambda: whole_program(model))
        parts["whole.onnx"] = lambda path: whole.save(path)
    return write_folder(run, Path(out) if out else run.folder / "onnx", parts, lambda folder: _compare(model, folder))


def _need_packages() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ExportError(f"onnx: {error.name} is not installed; install it with: {PACKAGES}") from None


def _steps_of(run: Run) -> Any:
    """Return the run's model; raise an `ExportError` if it does not predict symbols step by step."""
    model = run.model
    if run.config().task != "language":
        raise ExportError(
            f"{run.folder}: a run of task {run.config().task} has no step form from symbols to symbols; "
            f"onnx holds language models; its weights by name are in {run.folder / 'model.safetensors'}"
        )
    if not any(True for _ in model.parameters()):
        raise ExportError(
            f"{run.folder}: {run.config().family} looks counts up in sorted lists, which ONNX cannot; try -m gru"
        )
    return deepcopy(model).to("cpu").float()  # the run keeps its own


@torch.no_grad()
def _sample_memory(model: Any) -> Memory:
    """Return a memory of two rows after some steps: neither size may be mistaken for a constant."""
    ids = torch.zeros(2, 5, dtype=torch.long)
    memory: Memory = model(ids)[1]
    return memory


def _program(model: nn.Module, memory: Memory) -> Any:
    batch, steps = torch.export.Dim("batch", min=1, max=4096), torch.export.Dim("steps", min=1, max=1 << 20)
    shapes = tuple({0: batch} if axis is None else {0: batch, axis: steps} for axis in growing_axes(memory))
    form = StepForm(model, memory).eval()
    names = list(memory.tensors())
    given = (torch.zeros(2, dtype=torch.long), *memory.leaves())
    dynamic = ({0: batch}, shapes) if shapes else ({0: batch},)
    exported = torch.export.export(form, given, dynamic_shapes=dynamic, strict=True)
    outputs = ["logits", *(f"next.{name}" for name in names)]
    return torch.onnx.export(exported, input_names=["token", *names], output_names=outputs, verbose=False)


@torch.no_grad()
def _compare(model: Any, folder: Path) -> None:
    """Raise an `ExportError` unless ONNX Runtime computes the model's logits, step by step from the beginning."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    ids = torch.randint(model.vocab_size, (3, STEPS), generator=torch.Generator().manual_seed(0))
    expected, _ = model(ids)  # (B, T, V)
    memory = model.initial_memory(3)
    names, tensors = list(memory.tensors()), [t.numpy() for t in memory.leaves()]
    for t in range(STEPS):
        logits, *tensors = session.run(None, {"token": ids[:, t].numpy(), **dict(zip(names, tensors, strict=True))})
        _check(torch.from_numpy(logits), expected[:, t], f"at step {t}")
    if (folder / "whole.onnx").exists():
        for logits, expected in differences(model, folder / "whole.onnx"):
            _check(logits, expected, "of whole sequences")


def _check(found: Tensor, expected: Tensor, where: str) -> None:
    worst = ((found - expected).abs() / (1 + expected.abs())).max().item()
    if not worst <= TOLERANCE:
        raise ExportError(f"onnx: logits {where} differ by {worst:.1e}, expected at most {TOLERANCE:.0e}")
