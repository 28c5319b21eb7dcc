"""The whole-sequence form in ONNX: the logits of the model, and at every step the symbol that it generates greedily."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch

import recollect as rc
from exporting.test_step_forms import TINY, varied
from recollect.exporting import onnx_folder
from recollect.exporting.onnx_folder import ExportError, export_onnx
from recollect.exporting.whole_form import PARALLEL, longest, whole_program
from tiers import slow_after


@pytest.mark.parametrize("family", slow_after(1, PARALLEL))
def test_the_whole_form_generates_as_the_run_does(family, tmp_path):
    run = rc.train("recall:count=200", model=family, out=tmp_path / "run", **TINY)
    text = varied(run)
    folder = export_onnx(run)
    ids = run.tokenizer.encode(text)
    session = onnxruntime.InferenceSession(str(folder / "whole.onnx"), providers=["CPUExecutionProvider"])
    (logits,) = session.run(None, {"tokens": ids[None, :-1]})
    logits[..., list(run.tokenizer.unseen)] = -np.inf
    begin = len(run.tokenizer.encode(run.prompt()))
    assert logits[0, begin - 1 :].argmax(-1).tolist() == ids[begin:].tolist()
    two = np.stack([ids[:50], ids[50:100]])
    (logits,) = session.run(None, {"tokens": two})
    torch.testing.assert_close(
        torch.from_numpy(logits), run.model(torch.from_numpy(two))[0].detach(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_a_whole_form_that_computes_something_else_is_not_kept(tmp_path, monkeypatch):
    run = rc.train("recall:count=200", model="window", out=tmp_path / "run", **TINY)
    other = rc.train("recall:count=200", model="window", out=tmp_path / "other", **TINY | {"seed": 1})
    monkeypatch.setattr(onnx_folder, "whole_program", lambda model: whole_program(other.model))
    with pytest.raises(ExportError, match="logits of whole sequences differ by"):
        export_onnx(run)
    assert not (run.folder / "onnx").exists()


@pytest.mark.slow
def test_a_table_of_positions_bounds_the_length(tmp_path):
    run = rc.train("recall:count=200", model="transformer", out=tmp_path / "run", **TINY | {"max_length": 40})
    assert longest(run.model) == 40
    session = onnxruntime.InferenceSession(str(export_onnx(run) / "whole.onnx"), providers=["CPUExecutionProvider"])
    ids = torch.randint(run.model.vocab_size, (2, 40))
    (logits,) = session.run(None, {"tokens": ids.numpy()})
    torch.testing.assert_close(torch.from_numpy(logits), run.model(ids)[0].detach(), rtol=1e-4, atol=1e-5)
    assert longest(rc.LanguageModel(rc.LanguageConfig("transformer", vocab_size=7, width=16, layers=1))) == 1 << 16
