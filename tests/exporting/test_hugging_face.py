"""A run that was trained here, loaded by transformers with no custom code."""

from __future__ import annotations

import json

import pytest
import torch
import transformers

import recollect as rc
from command_line import ask
from recollect.exporting.hugging_face import AS_GPT2, export_run

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


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_transformers_fills_masks_as_the_run_does(kind, tmp_path):
    book = tmp_path / "book.txt"
    book.write_text("the cat sat on the mat .\nthe dog ran to the cat .\n" * 40, encoding="utf-8")
    settings = {"width": 16, "layers": 1, "steps": 32, "batch_size": 2, "budget": "2steps"}
    settings |= {} if kind == "char" else {"vocab_size": 300}
    settings = {**settings, "tokenizer": kind, "next_sentence": kind == "word"}
    run = rc.train(str(book), task="masked", model="bert", out=tmp_path / "run", **settings)
    done = ask("export", str(run.folder), "--to", "hf", "--out", str(tmp_path / "hf")).stdout
    assert f"recollect embed {tmp_path / 'hf'} TEXT" in done
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    for text in ("the [MASK] sat on the [MASK] .", "a bird", ""):
        assert tokenizer(text)["input_ids"] == run.tokenizer.encode(text).tolist()
    assert tokenizer.convert_tokens_to_ids([tokenizer.mask_token]) == [run.tokenizer.mask]
    pair = tokenizer("the cat", "a dog", return_tensors="pt")
    kind_of_model = transformers.AutoModelForPreTraining if kind == "word" else transformers.AutoModelForMaskedLM
    theirs = kind_of_model.from_pretrained(tmp_path / "hf").eval()(**pair)
    logits = theirs.prediction_logits if kind == "word" else theirs.logits
    y = run.model.encode(pair["input_ids"], segments=pair["token_type_ids"])
    torch.testing.assert_close(run.model.predict(y), logits, rtol=1e-5, atol=1e-5)
    if kind == "word":
        torch.testing.assert_close(run.model.follows(y), theirs.seq_relationship_logits, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(rc.embed(tmp_path / "hf", ["the dog"]), run.embed(["the dog"]), rtol=1e-5, atol=1e-6)


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
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "gpt2" / "config.json").write_text('{"model_type": "gpt2"}')  # a model of the user's
    with pytest.raises(rc.FileError, match="holds other files"):
        export_run(run, tmp_path / "gpt2")
    assert [path.name for path in (tmp_path / "gpt2").iterdir()] == ["config.json"]


def test_the_refusal_of_a_default_transformer_names_the_settings_that_can_be_exported(tmp_path):
    given = ["train", "recall:count=60", "-m", "transformer", "--budget", "1steps", "--width", "16"]
    ask(*given, "--out", str(tmp_path / "usual"))
    said = ask("export", str(tmp_path / "usual"), code=2).stderr
    assert f"recollect train TEXT -m transformer {AS_GPT2}" in said
    ask(*given, *AS_GPT2.split(), "--out", str(tmp_path / "gpt2"))
    ask("export", str(tmp_path / "gpt2"))
    assert (tmp_path / "gpt2" / "hf" / "model.safetensors").exists()
