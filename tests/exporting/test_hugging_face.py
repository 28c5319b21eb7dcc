"""A run that was trained here, loaded by transformers with no custom code."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import recollect as rc
from command_line import ask
from recollect.exporting.hugging_face import export_run

GPT2 = {"max_length": 64, "head_bias": False}
LLAMA = {"norm_kind": "rms", "activation": "swiglu", "bias": False, "kv_heads": 2}
TINY = {"width": 16, "layers": 1, "steps": 32, "batch_size": 2, "budget": "2steps"}


def trained(tmp_path, **settings) -> rc.Run:
    settings = TINY | settings
    return rc.train("recall:count=200", model="transformer", out=tmp_path / "run", **settings)


@pytest.mark.parametrize("structure", [GPT2, LLAMA], ids=["GPT-2", "Llama"])
def test_transformers_continues_as_the_run_does(structure, tmp_path):
    run = trained(tmp_path, **structure)
    ask("export", str(run.folder), "--to", "hf", "--out", str(tmp_path / "hf"))
    other = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    prompt = run.prompt()
    ids = torch.tensor([tokenizer(prompt)["input_ids"]])
    said = other.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None)
    text = run.generate(prompt, tokens=20, greedy=True)
    assert tokenizer.decode(said[0].tolist()) == text
    again = ask("generate", str(tmp_path / "hf"), prompt, "--tokens", "20", "--greedy", "--json").stdout
    assert json.loads(again)["text"] == text.removeprefix(prompt)
    torch.testing.assert_close(rc.embed(tmp_path / "hf", [prompt]), run.embed([prompt]), rtol=1e-5, atol=1e-6)


def test_a_run_that_transformers_has_not_is_refused_with_the_reason(tmp_path):
    run = trained(tmp_path)
    said = ask("export", str(run.folder), code=2).stderr
    assert "gpt2: positions are rotary (set max_length)" in said
    assert "llama: norms are no RMS norms (set norm_kind=rms)" in said
    assert not (run.folder / "hf").exists()
    assert (
        "--to: got 'tf', expected one of hf, onnx, torch" in ask("export", str(run.folder), "--to", "tf", code=2).stderr
    )


def test_nothing_else_is_overwritten(tmp_path):
    run = trained(tmp_path, **GPT2)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(rc.FileError, match="holds other files"):
        export_run(run, tmp_path / "other")
    with pytest.raises(rc.FileError, match="a run's own folder"):
        export_run(run, run.folder)
    assert export_run(run) == run.folder / "hf"
    assert export_run(run) == run.folder / "hf"  # again, over its own files
