"""Memories and weights to and from disk: safetensors and JSON only, nothing is ever unpickled.

A file is written under a temporary name and renamed, so that a crash leaves the old one complete. A memory file holds
its format, its version, the kinds of its memories and a checksum of these and its tensors. Equal tensors make equal
files, byte for byte. safetensors has no complex numbers: they are written as pairs (…, 2) of real and imaginary
parts, and the header entry `complex` lists their names.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor, nn

from recollect.core.memory import Memory, Part
from recollect.core.tensor_names import differences

FORMAT = "recollect-memory"
VERSION = 1
COMPLEX = "complex"  # header entry: the names of complex tensors
PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # a zip of torch.save, or a pickle
PICKLE = (
    "a pickle, which can run any code while it is read, so it is never loaded; expected model.safetensors: "
    "where you trust the file, convert it with transformers' save_pretrained"
)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
METADATA = "__metadata__"  # safetensors' name for the header's strings


class FileError(ValueError):
    """A file that cannot be used: the message names it, the reason, and what to do.

    >>> rc.load_memory("nowhere.safetensors")
    Traceback (most recent call last):
    recollect.core.serialize.FileError: nowhere.safetensors: ...
    """


class WriteFailed(RuntimeError, OSError):
    """A file that cannot be written, as on a full disk: the message names it, the reason, and what to do."""


def save_memory(memory: Memory, path: str | Path) -> None:
    """Write a memory of any kind to one file; `load_memory` reads it back.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/memory.safetensors"
    >>> _, memory = rc.SelfAttention(4, 2)(torch.zeros(1, 3, 4))
    >>> rc.save_memory(memory, path)
    >>> rc.load_memory(path).equals(memory)
    True
    """
    write_file(Path(path), memory_as_bytes(memory))


def memory_as_bytes(memory: Memory) -> bytes:
    """Return what `save_memory` writes."""
    tensors = memory.tensors()
    tree = json.dumps(_describe(memory))
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "tree": tree,
        "checksum": _checksum(tensors, tree),
    }
    return _tensors_as_bytes(tensors, header)


def load_memory(path: str | Path, device: str | torch.device = "cpu") -> Memory:
    """Read a memory back, of the kind that was saved, in tensors that share no storage with the file.

    Raises `FileError` for a file that is missing, damaged, of another format or version, or of an unknown kind.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/memory.safetensors"
    >>> rc.save_memory(rc.Hidden(hidden=torch.ones(1, 2)), path)
    >>> rc.load_memory(path).hidden.tolist()
    [[1.0, 1.0]]
    """
    return _memory_of(*read_tensors(Path(path), device), path)


def memory_from_bytes(data: bytes) -> Memory:
    """Read a memory back from the bytes of a file."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])[METADATA]
    tensors = {name: t.clone() for name, t in load(data).items()}  # clone: as in `read_tensors`
    return _memory_of(header, _with_complex(tensors, header), "memory")


def _memory_of(header: dict[str, str], tensors: dict[str, Tensor], path: str | Path) -> Memory:
    if header.get("format") != FORMAT:
        got = f"format {header.get('format')!r}"
        raise FileError(f"{path}: not a memory file (got {got}, expected {FORMAT!r}); write one with save_memory")
    if header.get("version") != str(VERSION):
        raise FileError(f"{path}: got memory format {header.get('version')}, expected {VERSION}; save it again")
    if header.get("checksum") != _checksum(tensors, header.get("tree", "")):
        raise FileError(f"{path}: damaged, its checksum does not match; use another copy or save it again")
    try:
        return _build(json.loads(header["tree"]), tensors, "")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: damaged or foreign, its description cannot be read ({error})") from error


def save_weights(module: nn.Module, path: str | Path, header: Mapping[str, str] | None = None) -> None:
    """Write a module's parameters and persistent buffers to one file, with further entries of its header.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "gru.safetensors"
    >>> rc.save_weights(rc.GRU(4, 8), path)
    >>> path.is_file()
    True
    """
    state = module.state_dict()
    write_tensors(state, Path(path), {**(header or {}), "format": "recollect-weights", "checksum": _checksum(state)})


def load_weights(module: nn.Module, path: str | Path) -> None:
    """Read parameters and buffers back into a module of the same shape; raise `FileError` where they do not fit.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/gru.safetensors"
    >>> one, other = rc.GRU(4, 8), rc.GRU(4, 8)
    >>> rc.save_weights(one, path)
    >>> rc.load_weights(other, path)
    >>> torch.equal(one.weight_ih, other.weight_ih)
    True
    """
    header, state = read_tensors(Path(path), "cpu")
    if header.get("checksum") not in (None, _checksum(state)):
        raise FileError(f"{path}: damaged, its checksum does not match; use another copy or save it again")
    expected = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        problems = differences({name: tuple(t.shape) for name, t in state.items()}, expected) or [str(error)]
        raise FileError(f"{path}: does not fit this {type(module).__name__}: {'; '.join(problems)}") from error


def _describe(part: Part) -> object:
    """Return the tree of kinds and plain values; tensors are found by their dotted names."""
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


def _hashable(value: object) -> object:
    """Return lists, as JSON writes tuples, as tuples again."""
    return tuple(_hashable(v) for v in value) if isinstance(value, list) else value


def _checksum(tensors: dict[str, Tensor], tree: str = "") -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        t = _plain(tensors[name]).cpu()
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _plain(t: Tensor) -> Tensor:
    """Return the values detached and contiguous, with no pending conjugation."""
    return t.detach().resolve_conj().resolve_neg().contiguous()


def write_tensors(tensors: dict[str, Tensor], path: Path, header: dict[str, str]) -> None:
    """Write named tensors and a header of strings as safetensors."""
    write_file(path, _tensors_as_bytes(tensors, header))


def _tensors_as_bytes(tensors: dict[str, Tensor], header: dict[str, str]) -> bytes:
    # clone: safetensors refuses tensors that share storage, and two fields may
    plain = {name: _plain(t).clone() for name, t in tensors.items()}
    pairs = sorted(name for name, t in plain.items() if t.is_complex())
    if pairs:
        header = {**header, COMPLEX: json.dumps(pairs)}
        plain |= {name: torch.view_as_real(plain[name]) for name in pairs}
    return _in_order(save(plain, header or None))


def _in_order(data: bytes) -> bytes:
    """Return a safetensors file with its header's strings sorted: safetensors writes them in a random order.

    Layout: the header's size (8 bytes, little-endian), the header (JSON, padded with spaces to 8 bytes), the tensors.
    """
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    if len(header.get(METADATA, ())) < 2:
        return data
    header[METADATA] = dict(sorted(header[METADATA].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def write_file(path: Path, data: bytes) -> None:
    """Write to a temporary file, flush it to the disk, and rename it: a crash leaves the old file complete."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        advice = "free disk space and try again" if error.errno in FULL else "choose another place"
        raise WriteFailed(f"{path}: {problem}; {advice}") from error
    finally:
        beside.unlink(missing_ok=True)


def read_tensors(path: Path, device: str | torch.device = "cpu") -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read a header and named tensors; raise `FileError` for what is no safetensors file."""
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    with path.open("rb") as opened:
        start = opened.read(9)  # of a safetensors file: the length of its header, which may begin with any bytes, and {
    if start.startswith(PICKLE_STARTS) and not start.endswith(b"{"):
        raise FileError(f"{path}: {PICKLE}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = file.metadata() or {}
            # clone: safetensors returns views of the file's bytes, at any address, while torch assumes that a tensor's
            # address is a multiple of its element size: view_as_complex of an unaligned one ends the process
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
        tensors = _with_complex(tensors, header)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise FileError(f"{path}: damaged or not a safetensors file ({error})") from error
    return header, tensors


def _with_complex(tensors: dict[str, Tensor], header: dict[str, str]) -> dict[str, Tensor]:
    names = json.loads(header.get(COMPLEX, "[]"))
    return tensors | {name: torch.view_as_complex(tensors[name]) for name in names}


def module_checksum(module: nn.Module) -> str:
    """Return the checksum of a module's parameters and buffers, that of the file that `save_weights` writes."""
    return _checksum(module.state_dict())
