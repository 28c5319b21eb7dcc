"""torch's exporter to ONNX, without its remarks about itself, and with errors that name the operator."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from recollect.runs.run import Run

OPERATOR = re.compile(r"OpOverload\(op='([\w.:]+)'|target=torch\.ops\.([\w.]+)\]")
LOGGERS = (  # they warn of packages that are not installed, and of what is not optimised
    "torch.onnx._internal.exporter._registration",
    "onnxscript",
    "onnx_ir",
)
MOST = 200  # characters of a reason


class ExportError(ValueError):
    """A model that the format cannot hold, or a file that computes something else."""


def as_program(run: Run, make: Callable[[], Any]) -> Any:
    """Return the program that `make` exports; raise an `ExportError` where ONNX has none for the model."""
    try:
        with _quiet(), torch.no_grad():
            return make()
    except Exception as error:  # the exporter raises of all kinds
        raise ExportError(
            f"{run.folder}: onnx cannot hold it: {_reason(error)}; write the layer without it, "
            f"or use the run as it is: {run.command('generate', run.prompt())}"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)


def _reason(error: Exception) -> str:
    """Return what the exporter could not translate: the operator, else the first line of its message."""
    found = OPERATOR.search(str(error))
    if found is not None:
        return f"there is no operator for {found[1] or found[2]}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:MOST] if lines else type(error).__name__
