"""Runs as ONNX and as torch.nn: the same text, by programs that do not import this package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import load_file

import recollect as rc
from command_line import ask
from recollect.exporting import onnx_folder, torch_folder
from recollect.exporting.onnx_folder import STEPS, ExportError, export_onnx
from recollect.models.own import load_name

LINE = ("gru", "lstm", "rnn", "window", "transformer", "linear-attention", "ttt-linear", "ttt-mlp")
DISTINCT = 10  # symbols, at least, of a text that is compared
TINY = {"width": 16, "layers": 2, "steps": 32, "batch_size": 2, "budget": "4steps"}


def trained(tmp_path, family: str, **settings) -> rc.Run:
    return rc.train("recall:count=200", model=family, out=tmp_path / "run", **TINY | settings)


def varied(run: rc.Run, tokens: int = 200) -> str:
    """Return what a run generates greedily, with weights that are drawn until it is no repetition of a few symbols.

    The export is compared with the model over its first 24 steps, so the symbols after those must differ too.
    """
    coder = run.tokenizer
    for seed in range(60):
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in (p for p in run.model.parameters() if p.dim() > 1):
                weight.copy_(torch.randn(weight.shape, generator=draw) * 3 / weight.shape[-1] ** 0.5)
        text = run.generate(run.prompt(), tokens=tokens, greedy=True)
        if len(set(coder.encode(text).tolist()[-tokens + STEPS :])) >= DISTINCT:
            return text
    raise AssertionError(f"fewer than {DISTINCT} symbols whatever the seed")


def said_by(folder, prompt: str, tokens: int) -> str:
    """Run the exported script where this package cannot be imported."""
    program = "import sys, runpy; sys.modules['recollect'] = None; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0])"
    words = [sys.executable, "-c", program, str(folder / "generate.py"), prompt, str(tokens)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.removesuffix("\n")


def by_steps(folder, ids: list[int], tokens: int, unseen: Sequence[int]) -> list[int]:
    """Continue ids greedily with ONNX Runtime, memory in and out by name."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    assert [out.name for out in session.get_outputs()] == [
        "logits",
        *(f"next.{given.name}" for given in session.get_inputs()[1:]),
    ]
    memory = load_file(folder / "memory.safetensors")
    found = list(ids)
    for place in range(len(ids) + tokens - 1):
        token = {"token": np.array([found[place]], dtype=np.int64)}
        logits, *after = session.run(None, token | {name: memory[name] for name in memory})
        memory = {out.name.removeprefix("next."): t for out, t in zip(session.get_outputs()[1:], after, strict=True)}
        if place >= len(ids) - 1:
            logits[0, list(unseen)] = -np.inf
            found.append(int(logits[0].argmax()))
    return found


@pytest.mark.parametrize("family", [pytest.param(f, marks=[pytest.mark.slow] if f != "gru" else []) for f in LINE])
def test_onnx_generates_as_the_run_does(family, tmp_path):
    run = trained(tmp_path, family)
    text = varied(run)
    folder = export_onnx(run)
    prompt = run.prompt()
    ids = run.tokenizer.encode(prompt).tolist()
    assert run.tokenizer.decode(by_steps(folder, ids, 200, run.tokenizer.unseen)) == text
    assert said_by(folder, prompt, 200) == text


def test_the_command_exports_without_remarks_of_the_exporter(tmp_path):
    run = trained(tmp_path, "gru")
    words = [sys.executable, "-m", "recollect", "export", str(run.folder), "--to", "onnx"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "equal to the model in ONNX Runtime" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("family", ["gru", pytest.param("window", marks=pytest.mark.slow)])
def test_weights_that_need_a_file_of_their_own_are_kept_and_replaced(family, tmp_path, monkeypatch):
    """Above 1.5 GiB the weights lie beside the program."""
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 0)
    run = trained(tmp_path, family)
    folder = export_onnx(run)
    programs = ["model.onnx", *(["whole.onnx"] if family == "window" else [])]
    assert all((folder / f"{name}.data").stat().st_size > 1000 for name in programs)
    found = by_steps(folder, run.tokenizer.encode(run.prompt()).tolist(), 20, run.tokenizer.unseen)
    assert run.tokenizer.decode(found) == run.generate(run.prompt(), tokens=20, greedy=True)
    assert export_onnx(run) == folder  # again, over its own files
    monkeypatch.undo()
    export_onnx(run)
    assert not list(folder.glob("*.data"))


@pytest.mark.parametrize("family", torch_folder.RECURRENT)
def test_torch_generates_as_the_run_does(family, tmp_path):
    run = trained(tmp_path, family, tied=family == "lstm", dropout=0.1)
    assert "torch.nn" in ask("export", str(run.folder), "--to", "torch").stdout
    prompt = run.prompt()
    names = set(load_file(run.folder / "torch" / "model.safetensors"))
    assert {"embedding.weight", "rnn.weight_ih_l0", "rnn.weight_hh_l1", "head.weight"} <= names
    text = varied(run)
    assert said_by(torch_folder.export_torch(run), prompt, 200) == text


@pytest.mark.parametrize(("format_", "family"), [("onnx", "markov"), ("torch", "markov"), ("torch", "transformer")])
def test_what_a_format_cannot_hold_is_refused(format_, family, tmp_path):
    settings = {} if family != "markov" else {"width": None, "layers": None, "steps": None, "batch_size": None}
    run = rc.train("recall:count=200", model=family, out=tmp_path / "run", budget="2steps", **settings_of(settings))
    refused = ask("export", str(run.folder), "--to", format_, code=2).stderr
    assert family in refused
    assert not (run.folder / format_).exists()


def settings_of(changes: dict) -> dict:
    return {name: value for name, value in (TINY | changes).items() if value is not None and name != "budget"}


def test_a_run_of_another_task_is_refused(tmp_path):
    run = rc.train("kindness:count=60", model="gru", out=tmp_path / "run", width=8, budget="2steps")
    assert "a run of task classify" in ask("export", str(run.folder), "--to", "onnx", code=2).stderr


def test_a_file_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    run = trained(tmp_path, "gru")
    original = onnx_folder._program

    def planted(model, memory):
        other = deepcopy(model)
        with torch.no_grad():
            other.body[1].weight_hh[0, 0] += 1.0
        return original(other, memory)

    monkeypatch.setattr(onnx_folder, "_program", planted)
    with pytest.raises(ExportError, match=r"logits at step \d+ differ by"):
        export_onnx(run)
    assert not (run.folder / "onnx").exists()
    assert not list(run.folder.glob(".onnx.*"))


def test_files_of_others_are_not_overwritten(tmp_path):
    run = trained(tmp_path, "gru")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert (
        "holds other files (notes.txt)"
        in ask("export", str(run.folder), "--to", "torch", "--out", str(tmp_path / "mine"), code=2).stderr
    )
    ask("export", str(run.folder), "--to", "torch", "--out", str(tmp_path / "torch"))
    ask("export", str(run.folder), "--to", "torch", "--out", str(tmp_path / "torch"))  # again, over its own files
    notes, program = (tmp_path / "mine" / name for name in ("notes.txt", "generate.py"))
    notes.rename(program)  # a name that an export has too
    refused = ask("export", str(run.folder), "--to", "torch", "--out", str(tmp_path / "mine"), code=2).stderr
    assert "holds other files (generate.py)" in refused
    assert program.read_text() == "mine"


OWN = """
import torch
from recollect.core.layer import SequenceLayer
from recollect.core.memory import Nothing


class Scaled(SequenceLayer[Nothing]):
    growth = "none"

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = self.width_out = width
        self.scale = torch.nn.Parameter(torch.ones(width))

    @property
    def streams(self) -> bool:
        return True

    def initial_memory(self, batch_size, like=None):
        return Nothing()

    def read(self, x, memory, valid):
        return x * self.scale, memory


class Bessel(Scaled):
    def read(self, x, memory, valid):
        return x * self.scale * torch.special.bessel_j0(self.scale.detach()), memory
"""


def test_a_layer_of_ones_own_is_exported_by_the_command_that_is_advised(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code = f"{tmp_path / 'own.py'}:Scaled"
    rc.train("recall:count=200", model=load_name(code), out=tmp_path / "run", **TINY)
    words = [sys.executable, "-m", "recollect", "export", str(tmp_path / "run"), "--to", "onnx"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)  # here the class is known already
    assert refused.returncode == 2
    assert "(-m " in refused.stderr
    assert "equal to the model" in ask("export", str(tmp_path / "run"), "--to", "onnx", "-m", code).stdout


def test_an_operator_that_onnx_has_not_is_named(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    code = f"{tmp_path / 'own.py'}:Bessel"
    rc.train("recall:count=200", model=load_name(code), out=tmp_path / "run", **TINY)
    refused = ask("export", str(tmp_path / "run"), "--to", "onnx", "-m", code, code=2).stderr
    assert "onnx cannot hold it: there is no operator for prims.bessel_j0; write the layer without it" in refused
    assert f"recollect generate {tmp_path / 'run'}" in refused
    assert len(refused.splitlines()) == 1
    assert not (tmp_path / "run" / "onnx").exists()


def test_a_layer_of_ones_own_without_memory_exports(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    own = load_name(f"{tmp_path / 'own.py'}:Scaled")
    run = rc.train("recall:count=200", model=own, out=tmp_path / "run", **TINY)
    opened = rc.load(run.folder, model=own)
    folder = export_onnx(opened)
    prompt = run.prompt()
    found = by_steps(folder, run.tokenizer.encode(prompt).tolist(), 50, run.tokenizer.unseen)
    assert run.tokenizer.decode(found) == opened.generate(prompt, tokens=50, greedy=True)


@pytest.mark.parametrize("write", [export_onnx, torch_folder.export_torch])
def test_an_export_leaves_the_open_model_as_it_is(write, tmp_path):
    run = trained(tmp_path, "gru")
    run.model.double()
    before = run.model(torch.tensor([[1, 2]]))[0]
    write(run, tmp_path / "out")
    assert next(run.model.parameters()).dtype == torch.float64
    torch.testing.assert_close(run.model(torch.tensor([[1, 2]]))[0], before, rtol=0, atol=0)


def test_weights_that_were_written_wrong_are_not_kept(tmp_path, monkeypatch):
    run = trained(tmp_path, "gru")
    monkeypatch.setattr("recollect.exporting.folder._own", lambda t: t.detach() + 1)
    with pytest.raises(ExportError, match="torch: logits differ by"):
        torch_folder.export_torch(run)
    assert not (run.folder / "torch").exists()
