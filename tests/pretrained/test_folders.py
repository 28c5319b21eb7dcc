"""Folders of other people's models: what is read of them, what is refused and why, and what we write."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

import recollect as rc
from recollect.data.error import DataError
from recollect.data.text.tokenizer_backend import as_pretrained
from recollect.pretrained.checkpoint import read_model

TEXT = "Once upon a time there was a cat.\nIt said:  “hé, 你好!”\r\nAnd\u2028the end"

LETTERS = rc.Tokenizer.train("char", [string.printable])


@pytest.fixture
def folder(tmp_path) -> Path:
    """Return a folder with a model of ours as GPT-2, and a tokenizer."""
    torch.manual_seed(0)
    rc.save_pretrained(gpt2(), tmp_path / "gpt2", LETTERS)
    return tmp_path / "gpt2"


def gpt2(**options) -> rc.LanguageModel:
    return rc.LanguageModel(
        "transformer", LETTERS.vocab_size, width=16, heads=2, max_length=64, head_bias=False, **options
    ).eval()


def change(folder: Path, does) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    does(tensors)
    save_file(tensors, path, {"format": "pt"})


def test_it_generates_what_was_saved(folder):
    pretrained = rc.from_pretrained(folder)
    torch.manual_seed(0)
    same = rc.Pretrained(gpt2(), LETTERS)
    assert pretrained.generate("The ", tokens=20, greedy=True) == same.generate("The ", tokens=20, greedy=True)
    streamed = "".join(pretrained.stream("The ", tokens=5, greedy=True))
    assert "The " + streamed == pretrained.generate("The ", tokens=5, greedy=True)
    with pytest.raises(rc.ContractError, match="the model has 64 positions"):
        pretrained.generate("The ", tokens=80)


def test_a_text_ends_at_its_end_symbol(folder):
    config = json.loads((folder / "config.json").read_text())
    ids = rc.generate(
        rc.from_pretrained(folder).model, [LETTERS.encode("A").tolist()], rc.Settings(tokens=9, greedy=True)
    )[0].ids
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": ids[2]}))
    pretrained = rc.from_pretrained(folder)
    assert pretrained.ends == (ids[2],)
    before = ids[: ids.index(ids[2])]
    assert pretrained.generate("A", tokens=9, greedy=True) == "A" + pretrained.tokenizer.decode(before)


def test_shards_are_read_as_one(folder):
    whole = read_model(folder)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: tensors[name] for name in some}, folder / file)
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    for (name, p), (_, q) in zip(whole.named_parameters(), read_model(folder).named_parameters(), strict=True):
        assert torch.equal(p, q), name


def test_tensors_that_do_not_fit_are_named_with_the_nearest(folder):
    def spoil(tensors) -> None:
        tensors["transformer.h.0.ln_1.wieght"] = tensors.pop("transformer.h.0.ln_1.weight")
        tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:9].clone()

    change(folder, spoil)
    with pytest.raises(rc.FileError) as raised:
        rc.from_pretrained(folder)
    said = str(raised.value)
    assert said.startswith(str(folder / "model.safetensors"))
    assert "missing transformer.h.0.ln_1.weight (nearest: transformer.h.0.ln_1.wieght)" in said
    assert "extra transformer.h.0.ln_1.wieght (nearest: transformer.h.0.ln_1.weight)" in said
    assert "of another shape transformer.wpe.weight (got (9, 16), expected (64, 16))" in said


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    rc.save_pretrained(gpt2(tied=True), tmp_path)
    change(tmp_path, lambda tensors: tensors["transformer.wpe.weight"][2].fill_(torch.nan))
    with pytest.raises(rc.FileError, match=r"model\.safetensors: transformer\.wpe\.weight holds NaN or infinity"):
        read_model(tmp_path)


@pytest.mark.parametrize(("entry", "error"), [({"n_head": 3}, "heads: got 3, expected a div"), ({"n_embd": "16"}, "")])
def test_a_size_that_no_model_has_is_named_with_its_folder(entry, error, tmp_path):
    rc.save_pretrained(gpt2(tied=True), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entry))
    with pytest.raises(rc.FileError, match=rf"{tmp_path}: config\.json: {error}.*; it does not belong"):
        read_model(tmp_path)


def test_quantised_weights_are_refused(tmp_path):
    rc.save_pretrained(gpt2(tied=True), tmp_path)
    change(tmp_path, lambda t: t.update({"transformer.wpe.weight": t["transformer.wpe.weight"].to(torch.int8)}))
    with pytest.raises(
        rc.FileError, match=r"transformer\.wpe\.weight is of the type int8, expected numbers with a frac"
    ):
        read_model(tmp_path)


def test_tied_tensors_that_differ_are_refused(tmp_path):
    rc.save_pretrained(gpt2(tied=True), tmp_path)
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].clone()}))
    read_model(tmp_path)
    change(tmp_path, lambda tensors: tensors["lm_head.weight"].add_(1))
    with pytest.raises(rc.FileError, match=r"lm_head\.weight differs from transformer\.wte\.weight"):
        read_model(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_a_pickle_is_refused_with_the_reason(folder, name):
    torch.save({"a": torch.ones(2)}, folder / name)
    with pytest.raises(rc.FileError, match=f"{name}: a pickle, which can run any code"):
        rc.from_pretrained(folder / name)
    (folder / name).replace(folder / "model.safetensors")
    with pytest.raises(rc.FileError, match=r"model\.safetensors: a pickle"):
        rc.from_pretrained(folder)
    (folder / "model.safetensors").replace(folder / name)
    with pytest.raises(rc.FileError, match=f"{name}: a pickle"):
        rc.from_pretrained(folder)


def test_what_is_missing_or_unknown_is_named(folder, tmp_path):
    with pytest.raises(rc.FileError, match="nowhere: there is no such folder"):
        rc.from_pretrained(tmp_path / "nowhere")
    config = json.loads((folder / "config.json").read_text())
    for wrong, problem in [
        ({"model_type": "gpt3"}, "model_type: got 'gpt3', expected one of gpt2, .*did you mean gpt2"),
        ({"n_embd": None}, "n_embd or hidden_size is missing"),
        ({"activation_function": "swish"}, "activation_function: got 'swish', expected one of gelu"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx: got True"),
    ]:
        (folder / "config.json").write_text(json.dumps(config | wrong))
        with pytest.raises(rc.FileError, match=problem):
            rc.from_pretrained(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(rc.FileError, match=r"config\.json: damaged"):
        rc.from_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"has no tokenizer, expected tokenizer\.json, vocab\.txt"):
        rc.from_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(b"\n")
    with pytest.raises(DataError, match="a SentencePiece model"):
        rc.from_pretrained(folder)
    (folder / "config.json").unlink()
    with pytest.raises(rc.FileError, match=r"config\.json: missing"):
        rc.from_pretrained(folder)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: rc.LanguageModel("lstm", 9), "LanguageModel of the family lstm: transformers has no such model"),
        (lambda: rc.LanguageModel("transformer", 9, max_length=9), r"gpt2: the map .* bias \(set head_bias=false\)"),
        (lambda: rc.LanguageModel("transformer", 9, norm_kind="rms", bias=False), "llama: .*set activation=swiglu"),
        (lambda: rc.MaskedModel(vocab_size=9, norm="pre"), r"bert: norms come before the layers \(set norm=post\)"),
        (lambda: rc.MaskedModel(vocab_size=9, shared=True), "albert: embeddings have the layers' width"),
    ],
)
def test_a_structure_that_transformers_lacks_is_refused_with_the_reason(model, reason, tmp_path):
    with pytest.raises(ValueError, match=reason):
        rc.save_pretrained(model(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["char", "byte", "word", "space", "bpe"])
def test_our_tokenizers_give_the_same_ids_as_files_of_theirs(kind, tmp_path):
    ours = rc.Tokenizer.train(kind, [TEXT], 300 if kind == "bpe" else None)
    rc.save_pretrained(rc.LanguageModel("transformer", 400, width=8, max_length=9, head_bias=False), tmp_path, ours)
    loaded = rc.PretrainedTokenizer.load(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (TEXT, "a  z ", " x\n\n", "\rA\r\nB", "", "a\x85 b"):
        expected = ours.encode(text).tolist()
        assert loaded.encode(text).tolist() == expected
        assert theirs(text)["input_ids"] == expected
    if kind != "space":
        assert loaded.decode(ours.encode(TEXT)) == theirs.decode(ours.encode(TEXT).tolist()) == TEXT


def test_vocabulary_files_are_read_as_transformers_reads_them(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", ".", "é", "e", "你"]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    ours = rc.PretrainedTokenizer.load(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    for text in ("The cats sat. É你", "the CAT", "zebra"):
        assert ours.encode(text).tolist() == theirs(text)["input_ids"]
    assert ours.encode("the cat sat. the cat sat.", most=5).tolist() == [2, 5, 6, 8, 3]
    assert ours.encode("the cat sat.").tolist() == [2, 5, 6, 8, 9, 3]  # not cut any longer
    with pytest.raises(DataError, match="nothing: not a symbol"):
        ours.id_of("nothing")


def test_byte_pairs_of_two_files_are_those_of_one(tmp_path):
    one = as_pretrained(rc.Tokenizer.train("bpe", [TEXT], 300))
    one.backend.model.save(str(tmp_path))
    two = rc.PretrainedTokenizer.load(tmp_path)
    assert isinstance(two.backend.model, tokenizers.models.BPE)
    assert two.decode(two.encode(TEXT)) == TEXT


def test_a_continuation_keeps_the_blank_before_a_word():
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({"▁": 0, "a": 1, "▁a": 2}, [("▁", "a")]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    tokenizer = rc.PretrainedTokenizer(backend)
    assert tokenizer.encode("a a").tolist() == [2, 2]
    decoding = tokenizer.stream("a")
    assert [decoding.step(2), decoding.step(1)] == [" a", "a"]
