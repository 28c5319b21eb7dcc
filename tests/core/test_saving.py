"""Memories and weights to disk and back; files that are damaged, foreign, old or missing; writes that are cut short."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import Tensor, nn

from recollect.core import serialize
from recollect.core.growing import Growing
from recollect.core.memory import Both, Fixed, Layers, Memory, Nothing, grows, hint, static
from recollect.core.serialize import (
    FORMAT,
    VERSION,
    FileError,
    load_memory,
    load_weights,
    read_tensors,
    save_memory,
    save_weights,
    write_tensors,
)
from recollect.layers.recurrent.recurrence import Hidden, HiddenCell


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixed(Memory):
    half: Tensor
    count: Tensor
    done: Tensor
    empty: Tensor
    pair: tuple[Tensor, Tensor]
    shape: Any = static(())
    label: Any = static()
    quick: bool = hint()


@dataclass(frozen=True, eq=False, kw_only=True)
class Origin(Fixed):
    source: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps(Growing):
    steps: Tensor = grows(1)


def mixed(**plain):
    return Mixed(
        half=torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16),
        count=torch.tensor([1, 2**60]),
        done=torch.tensor([True, False]),
        empty=torch.zeros(2, 0, 4),
        pair=(torch.ones(2), torch.zeros(2, dtype=torch.float64)),
        **plain,
    )


def hidden():
    return Hidden(hidden=torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


def steps(**plain):
    return Steps(steps=torch.ones(2, 3, 1), length=torch.tensor([3, 1]), **plain)


@dataclass(frozen=True, eq=False, kw_only=True)
class Waves(Memory):
    phase: Tensor
    gain: Tensor
    odd: Tensor


def waves():
    phase = torch.complex(torch.arange(6.0).reshape(2, 3), -torch.ones(2, 3))
    return Waves(phase=phase.conj(), gain=phase.to(torch.complex128)[:, ::2], odd=torch.ones(2, 3, dtype=torch.int8))


MEMORIES = {
    "complex": waves(),
    "nothing": Nothing(),
    "hidden": hidden(),
    "no rows": hidden().select([]),
    "dtypes": mixed(),
    "statics": mixed(shape=(1, (2, 3)), label="a ü 中", quick=True),
    "window": steps(limit=3, even=True, reserved=True),
    "nested": Layers(layers=(Nothing(), Both(forward=hidden(), backward=mixed()), Origin(source=torch.eye(2)))),
    "a stack in a stack": Layers(layers=(Layers(layers=(hidden(), Layers(layers=()))), steps())),
}


def plain_values(memory):
    return {f.name: getattr(memory, f.name) for f in memory._statics()}


@pytest.mark.parametrize("name", MEMORIES)
def test_memories_come_back_as_they_were(name, tmp_path):
    memory = MEMORIES[name]
    save_memory(memory, tmp_path / "memory")
    loaded = load_memory(tmp_path / "memory")
    assert type(loaded) is type(memory)
    assert loaded.equals(memory)
    assert plain_values(loaded) == plain_values(memory)
    before, after = memory.tensors(), loaded.tensors()
    assert list(before) == list(after)
    assert all(torch.equal(after[n], t) and after[n].dtype == t.dtype for n, t in before.items())


def test_the_path_may_be_text_and_a_file_is_replaced(tmp_path):
    path = str(tmp_path / "memory")
    save_memory(mixed(), path)
    save_memory(hidden(), path)
    assert load_memory(path).equals(hidden())
    assert os.listdir(tmp_path) == ["memory"]


def test_views_shared_storage_and_graphs_are_written_as_values(tmp_path):
    table = torch.arange(12.0).reshape(3, 4).requires_grad_()
    memory = HiddenCell(hidden=table.T[:2, :2] * 1, cell=table[1:, ::2])
    same = Both(forward=memory, backward=memory)
    save_memory(same, tmp_path / "memory")
    loaded = load_memory(tmp_path / "memory")
    assert loaded.equals(same)
    assert not any(t.requires_grad for t in loaded.tensors().values())


def test_a_file_is_readable_by_others(tmp_path):
    """Plain safetensors: names, tensors and a header in words."""
    from safetensors import safe_open

    save_memory(Both(forward=hidden(), backward=Nothing()), tmp_path / "memory")
    with safe_open(tmp_path / "memory", framework="np") as file:
        assert list(file.keys()) == ["forward.hidden"]
        assert file.metadata()["format"] == "recollect-memory"
        assert json.loads(file.metadata()["tree"])["kind"] == "Both"


# ---- files that cannot be used -------------------------------------------------------------------------


def refused(path, words):
    with pytest.raises(FileError, match=words) as caught:
        load_memory(path)
    assert str(path) in str(caught.value)


def test_every_flipped_bit_is_noticed(tmp_path):
    path, other = tmp_path / "memory", tmp_path / "damaged"
    save_memory(steps(limit=3), path)
    data = path.read_bytes()
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        other.write_bytes(damaged)
        refused(other, "damaged|not a memory file|memory format")


def test_a_changed_plain_value_is_noticed(tmp_path):
    path = tmp_path / "memory"
    save_memory(steps(limit=3), path)
    data = path.read_bytes()
    changed = data.replace(rb"\"limit\": 3", rb"\"limit\": 2")
    assert changed != data
    path.write_bytes(changed)
    refused(path, "damaged, its checksum does not match")


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 40, -1])
def test_truncated_files_are_noticed(kept, tmp_path):
    path = tmp_path / "memory"
    save_memory(hidden(), path)
    path.write_bytes(path.read_bytes()[:kept])
    refused(path, "damaged or not a safetensors file")


def test_a_flipped_value_is_told_by_the_checksum(tmp_path):
    path = tmp_path / "memory"
    save_memory(hidden(), path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    refused(path, "damaged, its checksum does not match")


def test_missing_files_and_folders_are_named(tmp_path):
    refused(tmp_path / "absent", "no such file")
    refused(tmp_path, "no such file")


def test_other_files_are_refused(tmp_path):
    save_file({"hidden": torch.ones(2, 2)}, tmp_path / "foreign")
    refused(tmp_path / "foreign", "not a memory file")
    save_weights(nn.Linear(2, 2), tmp_path / "weights")
    refused(
        tmp_path / "weights",
        "got format 'recollect-weights', expected 'recollect-memory'.; write one with save_memory",
    )
    (tmp_path / "text").write_text("hidden: 1, 2, 3\n" * 20)
    refused(tmp_path / "text", "damaged or not a safetensors file")


class Tripwire:
    """Says so if anyone unpickles it."""

    def __reduce__(self):
        return pytest.fail, ("a file was unpickled",)


def test_pickles_are_never_opened(tmp_path):
    with pytest.raises(pytest.fail.Exception, match="a file was unpickled"):
        pickle.loads(pickle.dumps(Tripwire()))
    (tmp_path / "pickle").write_bytes(pickle.dumps(Tripwire()))
    refused(tmp_path / "pickle", "a pickle, which can run any code while it is read, so it is never loaded")
    torch.save({"hidden": Tripwire()}, tmp_path / "saved.pt")
    refused(tmp_path / "saved.pt", "a pickle, which can run any code")
    with pytest.raises(FileError, match="a pickle, which can run any code"):
        load_weights(nn.Linear(2, 2), tmp_path / "saved.pt")


def forged(path, tree, **changes):
    """Write a memory file with a description of one's own and a checksum that fits."""
    from recollect.core.serialize import _checksum

    tensors = {"hidden": torch.ones(2, 2)}
    tree = json.dumps(tree)
    header = {"format": FORMAT, "version": str(VERSION), "tree": tree, "checksum": _checksum(tensors, tree)}
    save_file(tensors, path, {**header, **changes})
    return path


GOOD = {"kind": "Hidden", "parts": {"hidden": "tensor"}, "statics": {}}


def test_a_forged_file_with_a_sound_description_is_read(tmp_path):
    assert torch.equal(load_memory(forged(tmp_path / "memory", GOOD)).hidden, torch.ones(2, 2))


def test_another_version_is_refused(tmp_path):
    refused(forged(tmp_path / "memory", GOOD, version="2"), "got memory format 2, expected 1; save it again")


def test_an_unknown_kind_is_refused(tmp_path):
    refused(forged(tmp_path / "memory", GOOD | {"kind": "Dream"}), "unknown kind of memory 'Dream'")


@pytest.mark.parametrize(
    "tree",
    [
        None,
        3,
        {},
        {"kind": "Hidden"},
        GOOD | {"parts": {"hidden": "tensor", "cell": "tensor"}},
        GOOD | {"parts": {}},
        GOOD | {"parts": 3},
        GOOD | {"statics": {"limit": 3}},
        GOOD | {"statics": [1]},
        GOOD | {"kind": ["Hidden"]},
    ],
    ids=str,
)
def test_a_description_that_makes_no_sense_is_refused(tree, tmp_path):
    refused(forged(tmp_path / "memory", tree), "damaged or foreign, its description cannot be read")


def test_a_file_without_description_is_refused(tmp_path):
    header = {"format": FORMAT, "version": str(VERSION)}
    save_file({"hidden": torch.ones(2, 2)}, tmp_path / "memory", header)
    refused(tmp_path / "memory", "damaged")


# ---- writes that are cut short -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("disk full")], ids=str)
@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_the_old_file_whole(stop, call, tmp_path, monkeypatch):
    path = tmp_path / "memory"
    save_memory(hidden(), path)

    def interrupted(*_):
        raise stop

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(type(stop) if isinstance(stop, OSError) else stop):
        save_memory(mixed(), path)
    assert load_memory(path).equals(hidden())
    assert os.listdir(tmp_path) == ["memory"]


def test_an_interrupted_first_write_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_memory(hidden(), tmp_path / "memory")
    assert os.listdir(tmp_path) == []


# ---- weights -----------------------------------------------------------------------------------------------


def test_weights_come_back_as_they_were(tmp_path):
    torch.manual_seed(0)
    one, other = nn.LSTM(2, 3, dtype=torch.float64), nn.LSTM(2, 3, dtype=torch.float64)
    save_weights(one, tmp_path / "weights")
    load_weights(other, tmp_path / "weights")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_weights_without_a_checksum_are_read(tmp_path):
    """Files of others have none."""
    save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, tmp_path / "weights")
    module = nn.Linear(2, 1)
    load_weights(module, tmp_path / "weights")
    assert module.weight.tolist() == [[1, 1]]


@pytest.mark.parametrize("length", [640, 896, 1152, 1408])
def test_a_header_whose_length_is_written_as_a_pickle_begins_is_read(length, tmp_path):
    """640 = 0x0280 is written as 80 02 00 …, the first bytes of a pickle of protocol 2."""
    path = tmp_path / "weights"
    for filling in range(length):
        save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, path, {"filling": "x" * filling})
        if int.from_bytes(path.read_bytes()[:8], "little") == length:
            break
    assert path.read_bytes()[:2] == length.to_bytes(2, "little")
    module = nn.Linear(2, 1)
    load_weights(module, path)
    assert module.weight.tolist() == [[1, 1]]


def test_damaged_missing_and_unfitting_weights_are_refused(tmp_path):
    path = tmp_path / "weights"
    with pytest.raises(FileError, match="weights: no such file"):
        load_weights(nn.Linear(2, 1), path)
    save_weights(nn.Linear(2, 1), path)
    with pytest.raises(
        FileError, match=r"weights: does not fit this Linear: of another shape weight \(got \(1, 2\), expected \(1, 3\)"
    ):
        load_weights(nn.Linear(3, 1), path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileError, match="weights: damaged, its checksum does not match"):
        load_weights(nn.Linear(2, 1), path)


def test_a_saved_file_is_as_readable_as_any_other(tmp_path):
    save_memory(Nothing(), tmp_path / "memory")
    (tmp_path / "other").touch()
    assert (tmp_path / "memory").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_equal_memories_make_equal_files(tmp_path):
    memory = mixed(shape=(1, 2), label="a")
    for number in range(8):  # safetensors writes its header in a random order
        save_memory(memory, tmp_path / f"{number}.memory")
        save_weights(nn.Linear(2, 2).requires_grad_(False).apply(ones), tmp_path / f"{number}.weights")
    for kind in ("memory", "weights"):
        assert len({path.read_bytes() for path in tmp_path.glob(f"*.{kind}")}) == 1


SAVE_THE_SAME = """
import sys, torch
from recollect.core.serialize import save_weights, write_tensors
from pathlib import Path
layer = torch.nn.LSTM(3, 4)
for p in layer.parameters():
    torch.nn.init.constant_(p, 0.5)
save_weights(layer, sys.argv[1] + "/weights")
names = set("abcdefgh")  # whose order depends on the process
tensors = {name: torch.ones(ord(name) % 3) for name in names}
write_tensors(tensors, Path(sys.argv[1] + "/tensors"), {n: n for n in names})
"""


def test_equal_tensors_of_two_processes_make_equal_files(tmp_path):
    for seed in ("1", "2", "3"):
        (tmp_path / seed).mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", SAVE_THE_SAME, str(tmp_path / seed)], check=True, env=environment)
    for name in ("weights", "tensors"):
        assert len({(tmp_path / seed / name).read_bytes() for seed in ("1", "2", "3")}) == 1


def ones(module):
    nn.init.ones_(module.weight)
    nn.init.ones_(module.bias)


READ_AS_COMPLEX = """
import sys, torch
from recollect.core.serialize import load_memory
from recollect.layers.recurrent.recurrence import Hidden
for path in sys.argv[1:]:
    hidden = load_memory(path).hidden
    assert hidden.data_ptr() % 16 == 0, hidden.data_ptr()
    torch.view_as_complex(hidden).abs().sum().item()
print("read")
"""


def test_loaded_tensors_are_aligned(tmp_path):
    """Read as complex numbers at an odd address, a tensor ends the process: so in one of its own."""
    paths = []
    for length in range(1, 17):  # each shifts the tensors by another header
        paths.append(tmp_path / ("m" * length))
        header = {"format": FORMAT, "version": str(VERSION), "note": "n" * length}
        tensors = {"hidden": torch.randn(2, 2, dtype=torch.float64)}
        tree = json.dumps({"kind": "Hidden", "parts": {"hidden": "tensor"}, "statics": {}})
        header |= {"tree": tree, "checksum": serialize._checksum(tensors, tree)}
        write_unpadded(paths[-1], tensors, header)
    done = subprocess.run(
        [sys.executable, "-c", READ_AS_COMPLEX, *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stderr


def write_unpadded(path, tensors, header):
    """Write as other programs may: the header is not padded, so that the tensors lie at any address."""
    data = save(tensors, header)
    size = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + size].rstrip()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])


def test_a_complex_name_without_its_tensor_is_refused(tmp_path):
    write_tensors({"a": torch.ones(2)}, tmp_path / "file", {"complex": '["b"]'})
    with pytest.raises(FileError, match="file: damaged or not a safetensors file"):
        read_tensors(tmp_path / "file")
