"""Parity with transformers on random weights, both directions: logits, gradients, greedy text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn

import recollect as rc
from recollect.pretrained.checkpoint import FORMATS, read_model, write_model
from recollect.pretrained.entries import expected_shapes

TOL = {"rtol": 1e-5, "atol": 1e-5}
DECODERS = {
    "GPT-2": transformers.GPT2Config(vocab_size=23, n_embd=16, n_layer=2, n_head=4, n_positions=40),
    "GPT-2 untied, gelu": transformers.GPT2Config(
        vocab_size=23,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=40,
        n_inner=24,
        activation_function="gelu",
        tie_word_embeddings=False,
    ),
    "Llama": transformers.LlamaConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "Llama tied, one key head": transformers.LlamaConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
    ),
    "Mistral": transformers.MistralConfig(
        vocab_size=23,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=5,
    ),
}
BERT = {
    "vocab_size": 23,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 12,
}
ENCODERS = {
    "BERT": transformers.BertForPreTraining(transformers.BertConfig(**BERT)),
    "ALBERT": transformers.AlbertForPreTraining(transformers.AlbertConfig(**BERT, embedding_size=6)),
}
HEADS = {"all": {"pooled": True, "next_sentence": True}, "masked": {}, "none": {"masked": False, "pooled": True}}
IDS = torch.tensor([[1, 7, 3, 9, 2, 22, 4, 7], [5, 6, 1, 1, 0, 0, 0, 0]])
VALID = torch.tensor([[True] * 8, [True] * 4 + [False] * 4])


def stirred(model: nn.Module) -> Any:
    """Move all weights, also those that begin at 0 or 1, so that a missing one is seen."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return model.eval()


def theirs(name: str) -> Any:
    DECODERS[name].bos_token_id = DECODERS[name].eos_token_id = None
    return stirred(transformers.AutoModelForCausalLM.from_config(DECODERS[name]))


def both(model: Any, folder: Path) -> tuple[Any, Any]:
    """Return a model of transformers, and ours with its weights."""
    model.save_pretrained(folder)
    return model, read_model(folder)


def gradients(ours: nn.Module, kind: str, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradients of our parameters under their names."""
    form = FORMATS[kind]
    parameters = dict(ours.named_parameters())
    found = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    entries = form.entries(ours)
    return {
        name: part for entry in entries for name, part in zip(entry.theirs, entry.split(found[entry.ours]), strict=True)
    }


def weighted(logits: Tensor) -> Tensor:
    """Return a number that depends on every logit at real steps in its own way."""
    weights = torch.cos(torch.arange(logits.numel(), dtype=logits.dtype)).reshape(logits.shape)
    valid = VALID[:, : logits.shape[1]].reshape(2, -1, *[1] * (logits.dim() - 2)) if logits.dim() == 3 else 1
    return (logits * weights * valid).sum()


def check_gradients(ours: nn.Module, other: nn.Module, kind: str, loss: Tensor, their_loss: Tensor) -> None:
    expected = dict(other.named_parameters())
    reference = dict(zip(expected, torch.autograd.grad(their_loss, list(expected.values())), strict=True))
    found = gradients(ours, kind, loss)
    assert set(found) == set(expected)
    for name, gradient in found.items():
        scale = 1 + reference[name].abs().max()
        torch.testing.assert_close(gradient / scale, reference[name] / scale, **TOL, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_has_their_logits_and_gradients(name, tmp_path):
    other, ours = both(theirs(name), tmp_path)
    logits, _ = ours(IDS, valid=VALID)
    reference = other(IDS, attention_mask=VALID.long()).logits
    torch.testing.assert_close(logits[VALID], reference[VALID], **TOL)
    check_gradients(ours, other, DECODERS[name].model_type, weighted(logits), weighted(reference))


@pytest.mark.parametrize("name", [name for name in DECODERS if name != "Mistral"])
def test_a_decoder_of_ours_is_loaded_by_transformers(name, tmp_path):
    _, ours = both(theirs(name), tmp_path / "theirs")
    stirred(ours)
    write_model(ours, tmp_path / "ours")
    other, notes = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(notes[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    reference = other.eval()(IDS).logits
    torch.testing.assert_close(ours(IDS)[0], reference, **TOL)


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_text_is_theirs_with_and_without_memory(name, tmp_path):
    other, ours = both(theirs(name), tmp_path)
    prompt = [1, 7, 3]
    limits = {"max_new_tokens": 30, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    for use_cache in (True, False):
        reference = other.generate(torch.tensor([prompt]), use_cache=use_cache, **limits)[0, 3:].tolist()
        assert rc.generate(ours, [prompt], rc.Settings(tokens=30, greedy=True))[0].ids == reference
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(30):
            ids.append(int(ours(torch.tensor([ids]))[0][0, -1].argmax()))
    assert ids[3:] == reference


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_has_their_outputs_and_gradients(name, tmp_path):
    other, ours = both(stirred(ENCODERS[name]), tmp_path)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0, 0]])
    found = other(IDS, attention_mask=VALID.long(), token_type_ids=segments)
    base = other.base_model(IDS, attention_mask=VALID.long(), token_type_ids=segments)
    encoded = ours.encode(IDS, valid=VALID, segments=segments)
    follows = found.seq_relationship_logits if name == "BERT" else found.sop_logits
    torch.testing.assert_close(encoded[VALID], base.last_hidden_state[VALID], **TOL)
    torch.testing.assert_close(ours.pool(encoded), base.pooler_output, **TOL)
    torch.testing.assert_close(ours.follows(encoded), follows, **TOL)
    logits = ours.predict(encoded)
    torch.testing.assert_close(logits[VALID], found.prediction_logits[VALID], **TOL)
    loss = weighted(logits) + weighted(ours.follows(encoded))
    check_gradients(ours, other, name.lower(), loss, weighted(found.prediction_logits) + weighted(follows))


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("heads", HEADS)
def test_an_encoder_of_ours_is_loaded_by_transformers(name, heads, tmp_path):
    given: dict[str, Any] = {"shared": True, "embedding": 6} if name == "ALBERT" else {}
    given |= {"all": {"pooled": True, "next_sentence": True}, "masked": {}, "none": {"masked": False, "pooled": True}}[
        heads
    ]
    ours = stirred(rc.MaskedModel(vocab_size=23, width=16, heads=4, max_length=12, activation="gelu_tanh", **given))
    write_model(ours, tmp_path)
    kinds = {"all": "PreTraining", "masked": "MaskedLM", "none": ""}
    auto = getattr(transformers, f"AutoModel{'For' if kinds[heads] else ''}{kinds[heads]}")
    other, notes = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(notes[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    found = other.eval()(IDS, attention_mask=VALID.long())
    got = ours(IDS, valid=VALID)[0]
    torch.testing.assert_close(got[VALID], next(iter(found.values()))[VALID], **TOL)


@pytest.mark.parametrize("kind", ["transformers' base model", "gamma and beta"])
def test_older_and_bare_checkpoints_are_read(kind, tmp_path):
    other = stirred(ENCODERS["BERT"])
    if kind == "gamma and beta":
        old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        named = {re.sub("LayerNorm.(weight|bias)", lambda m: old[m[0]], n): t for n, t in other.state_dict().items()}
        save_file({name: t.clone() for name, t in named.items()}, tmp_path / "model.safetensors")
        other.config.save_pretrained(tmp_path)
    else:
        other.base_model.save_pretrained(tmp_path)
    ours = read_model(tmp_path)
    assert ours.config.masked == (kind == "gamma and beta")
    torch.testing.assert_close(ours.encode(IDS), other.base_model(IDS).last_hidden_state, **TOL)


def test_every_parameter_has_its_entry(tmp_path):
    for name, form in (("BERT", "bert"), ("ALBERT", "albert")):
        _, ours = both(ENCODERS[name], tmp_path / form)
        entries = FORMATS[form].entries(ours)
        assert sorted(entry.ours for entry in entries) == sorted(dict(ours.named_parameters()))
        assert len(expected_shapes(dict(ours.named_parameters()), entries)) == sum(len(e.theirs) for e in entries)
