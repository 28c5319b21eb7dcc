"""The files of a checkpoint that several processes write together, each its own shards.

They are safetensors with the place of each shard in the header, as torch's distributed checkpoint (DCP) writes and
reads them for Hugging Face. Any number of processes reads what any other number wrote. DCP's planners would send
pickles between the processes, and its own format is one; here each process plans for itself, and nothing is sent.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recollect.core.serialize import FileError, WriteFailed
from recollect.core.tensor_names import differences

FOLDER = "shards"
SUFFIX = ".safetensors"


def write_shards(tensors: Mapping[str, Tensor], folder: Path, rank: int) -> None:
    """Write this process's shards of divided tensors, and in the first process also the tensors that are not."""
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.tensor import DTensor

    own = folder / f"{rank:05d}"
    kept = {name: t for name, t in tensors.items() if rank == 0 or isinstance(t, DTensor)}
    try:
        writer, planner = _writer(own), DefaultSavePlanner()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="TypedStorage is deprecated")  # torch 2.8 uses it itself
            planner.set_up_planner(kept, writer.storage_meta(), is_coordinator=True)
            writer.set_up_storage_writer(True)
            (plan,) = writer.prepare_global_plan([writer.prepare_local_plan(planner.create_local_plan())])
            writer.write_data(planner.finish_plan(plan), planner).wait()
        for written in own.glob(f"*{SUFFIX}"):
            os.replace(written, folder / f"{rank:05d}{SUFFIX}")
        own.rmdir()
    except OSError as error:
        raise WriteFailed(f"{own}: cannot be written ({error.strerror or error})") from error


def read_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, divided or not, with what was written under their names; raise a `FileError` where it is not there.

    Of divided tensors each process reads its own shards.
    """
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    reader, planner = HuggingFaceStorageReader(str(folder)), DefaultLoadPlanner()
    metadata = reader.read_metadata()
    saved: Any = metadata.state_dict_metadata
    problems = differences({name: tuple(saved[name].size) for name in tensors if name in saved}, _shapes(tensors))
    if problems:
        raise FileError(f"{folder}: does not fit this model: {'; '.join(problems)}")
    planner.set_up_planner(dict(tensors), metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, True)
    plan = reader.prepare_local_plan(planner.create_local_plan())
    with torch.no_grad():
        reader.read_data(planner.finish_plan(plan), planner).wait()


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in tensors.items()}


def saved_in(folder: Path) -> dict[str, Tensor]:
    """Return the names of all tensors that were written, each with its full shape and its dtype, without data."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    saved: Any = HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata
    return {name: torch.empty(one.size, dtype=one.properties.dtype, device="meta") for name, one in saved.items()}


def _writer(folder: Path) -> Any:
    """Return DCP's writer of one process's shards; torch 2.8 names the option differently."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    known = signature(HuggingFaceStorageWriter).parameters
    option: Any = "save_distributed" if "save_distributed" in known else "save_sharded"
    writer: Any = HuggingFaceStorageWriter
    return writer(str(folder), **{option: True})
