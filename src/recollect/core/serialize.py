"""Memories and weights to and from disk: safetensors and JSON only, nothing is ever unpickled.

A file is written beside its place and renamed, so that a crash leaves the old one whole. A memory file names
its format, its version, the kinds of its memories and a checksum of these and its tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from recollect.core.memory import Memory

FORMAT = "recollect-memory"
VERSION = 1


class FileError(ValueError):
    """A file that cannot be used: says which one, why, and what to do."""


class WriteFailed(RuntimeError, OSError):
    """A file that cannot be written, as on a full disk: says which one, why, and what to do."""


def save_memory(memory: Memory, path: str | Path) -> None:
    """Write a memory of any kind to one file."""
    tensors, tree = memory.tensors(), json.dumps(_describe(memory))
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "tree": tree,
        "checksum": _checksum(tensors, tree),
    }
    write_tensors(tensors, Path(path), header)


def load_memory(path: str | Path, device: str | torch.device = "cpu") -> Memory:
    """Read a memory back, of the kind that was saved."""
    header, tensors = read_tensors(Path(path), device)
    if header.get("format") != FORMAT:
        raise FileError(f"{path}: not a memory file (format {header.get('format')!r}); write one with save_memory")
    if header.get("version") != str(VERSION):
        raise FileError(f"{path}: memory format {header.get('version')}, this version reads {VERSION}; save it again")
    if header.get("checksum") != _checksum(tensors, header.get("tree", "")):
        raise FileError(f"{path}: damaged, its checksum does not match; take another copy or save it again")
    try:
        return _build(json.loads(header["tree"]), tensors, "")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: damaged or foreign, its description cannot be read ({error})") from error


def save_weights(module: nn.Module, path: str | Path) -> None:
    """Write a module's state to one file."""
    state = module.state_dict()
    write_tensors(state, Path(path), {"format": "recollect-weights", "checksum": _checksum(state)})


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Read a module's state back into a module of the same shape."""
    header, state = read_tensors(Path(path), "cpu")
    if header.get("checksum") not in (None, _checksum(state)):
        raise FileError(f"{path}: damaged, its checksum does not match; take another copy or save it again")
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise FileError(f"{path}: does not fit this {type(module).__name__} ({error})") from error


def _describe(part: Any) -> Any:
    """Give the tree of kinds and plain values; tensors are found by their dotted names."""
    if isinstance(part, Tensor):
        return "tensor"
    if isinstance(part, tuple):
        return [_describe(p) for p in part]
    parts = {name: _describe(p) for name, p, _ in part._parts()}
    statics = {f.name: getattr(part, f.name) for f in part._statics()}
    return {"kind": type(part).kind(), "parts": parts, "statics": statics}


def _build(tree: Any, tensors: dict[str, Tensor], name: str) -> Any:
    if tree == "tensor":
        return tensors[name]
    if isinstance(tree, list):
        return tuple(_build(part, tensors, f"{name}.{i}") for i, part in enumerate(tree))
    if tree["kind"] not in Memory.kinds:
        raise ValueError(f"unknown kind of memory {tree['kind']!r}")
    prefix = f"{name}." if name else ""
    parts = {field: _build(part, tensors, prefix + field) for field, part in tree["parts"].items()}
    statics = {name: _hashable(value) for name, value in tree["statics"].items()}
    return Memory.kinds[tree["kind"]](**parts, **statics)


def _hashable(value: Any) -> Any:
    """Give back the tuples that JSON wrote as lists."""
    return tuple(_hashable(v) for v in value) if isinstance(value, list) else value


def _checksum(tensors: dict[str, Tensor], tree: str = "") -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        t = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write_tensors(tensors: dict[str, Tensor], path: Path, header: dict[str, str]) -> None:
    """Write named tensors as safetensors."""
    # clone: safetensors refuses tensors that share storage, and two fields may
    write_file(path, save({name: t.detach().contiguous().clone() for name, t in tensors.items()}, header or None))


def write_file(path: Path, data: bytes) -> None:
    """Write beside the place, to the disk, and rename: a crash leaves the old file whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise WriteFailed(f"{path}: cannot be written ({error.strerror or error}); make room and try again") from error
    finally:
        beside.unlink(missing_ok=True)


def read_tensors(path: Path, device: str | torch.device = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read a header and named tensors; refuse what is no safetensors file."""
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
        return header, load_file(path, device=str(device))
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path}: damaged or not a safetensors file ({error})") from error
