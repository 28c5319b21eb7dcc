"""Vectors of texts: poolings, padding, sentence-transformers' files, and the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

import recollect as rc
from command_line import ask
from recollect.generation import embedding
from recollect.generation.embedding import SentencePooling, at_once, embed_rows, in_chunks

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "on", "a", "mat", "."]
LINES = ["the cats sat on a mat.", "a cat", "", "the the the the the the the the the the"]
FEATURES = torch.tensor([[[1.0, 2.0], [3.0, 0.0]], [[5.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
VALID = torch.tensor([[True, True], [True, False], [False, False]])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2.0, 1.0], [5.0, 1.0], [0.0, 0.0]]),
        ("max", [[3.0, 2.0], [5.0, 1.0], [0.0, 0.0]]),
        ("first", [[1.0, 2.0], [5.0, 1.0], [0.0, 0.0]]),
        ("last", [[3.0, 0.0], [5.0, 1.0], [0.0, 0.0]]),
    ],
)
def test_poolings(pooling, expected):
    assert SentencePooling(pooling, normalise=False).pool(FEATURES, VALID).tolist() == expected
    norms = SentencePooling(pooling).pool(FEATURES, VALID).norm(dim=1)
    torch.testing.assert_close(norms, torch.tensor([1.0, 1.0, 0.0]))
    assert SentencePooling(pooling).pool(FEATURES[:, :0], VALID[:, :0]).shape == (3, 2)


def test_vectors_do_not_depend_on_the_batch_and_keep_their_order():
    rows = [np.arange(n) for n in (3, 0, 7, 1, 7, 2)]
    read = at_once(lambda ids, valid: torch.nn.functional.one_hot(ids, 8).float() * valid[..., None])
    pooling = SentencePooling()
    cpu = torch.device("cpu")
    together = embed_rows(read, rows, pooling, device=cpu)
    assert torch.equal(together, torch.cat([embed_rows(read, [row], pooling, device=cpu) for row in rows]))
    assert torch.equal(together, embed_rows(read, rows, pooling, device=cpu, batch=2))
    with pytest.raises(ValueError, match="pooling: got 'median', expected one of mean"):
        SentencePooling("median")


@pytest.mark.parametrize("pooling", ["mean", "max", "first", "last"])
@pytest.mark.parametrize("family", ["lstm", "transformer", "window", "ttt-linear", "linear-attention"])
def test_a_text_that_is_read_in_chunks_has_the_vector_of_the_whole(family, pooling, monkeypatch):
    monkeypatch.setattr(embedding, "CHUNK", 7)
    torch.manual_seed(0)
    model = rc.LanguageModel(family, 11, width=16, layers=2).double().eval()
    rows = [np.random.default_rng(n).integers(11, size=n) for n in (30, 0, 3, 14, 7, 29, 8)]
    how = SentencePooling(pooling), torch.device("cpu")
    whole = at_once(lambda ids, valid: model.features(ids, valid=valid)[0])
    expected = embed_rows(whole, rows, how[0], device=how[1])
    found = embed_rows(in_chunks(model), rows, how[0], device=how[1])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_long_rows_are_read_in_small_batches(monkeypatch):
    monkeypatch.setattr(embedding, "STEPS", 40)
    seen = []

    def read(ids, valid):
        seen.append(tuple(ids.shape))
        return (torch.ones(*ids.shape, 2),)

    rows = [np.zeros(n, dtype=np.int64) for n in (3, 50, 20, 20, 4)]
    assert embed_rows(read, rows, SentencePooling(), device=torch.device("cpu")).shape == (5, 2)
    assert seen == [(1, 50), (2, 20), (2, 4)]


@pytest.fixture
def folder(tmp_path):
    """Return a sentence encoder as sentence-transformers saves it: mean, normalised, at most nine symbols."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=len(WORDS), **sizes)
    transformers.BertModel(config).save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    modules = [{"type": f"sentence_transformers.models.{name}", "path": path} for name, path in MODULES]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    return tmp_path


MODULES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]


def test_a_sentence_encoder_gives_the_reference_vectors(folder):
    model = transformers.BertModel.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(folder)
    given = tokenizer(LINES, padding=True, truncation=True, max_length=9, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**given).last_hidden_state
    mask = given["attention_mask"][..., None]
    reference = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
    torch.testing.assert_close(rc.embed(folder, LINES), reference, rtol=1e-5, atol=1e-5)


def test_the_command_line_prints_a_vector_a_line(folder, tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(LINES[:2]))
    said = ask("embed", str(folder), str(tmp_path / "lines.txt"), "--json").stdout
    rows = [json.loads(row) for row in said.splitlines()]
    assert [row["text"] for row in rows] == LINES[:2]
    torch.testing.assert_close(torch.tensor([row["vector"] for row in rows]), rc.embed(folder, LINES[:2]))
    (one,) = ask("embed", str(folder), LINES[0]).stdout.splitlines()
    torch.testing.assert_close(torch.tensor([float(word) for word in one.split()]), torch.tensor(rows[0]["vector"]))


def test_bad_folders_end_with_2_and_the_reason(folder, tmp_path):
    assert "continues none; use embed" in ask("generate", str(folder), "a", code=2).stderr
    (folder / "vocab.txt").unlink()
    assert "has no tokenizer" in ask("embed", str(folder), "a", code=2).stderr
    (folder / "config.json").unlink()
    assert "config.json: missing" in ask("embed", str(folder), "a", code=2).stderr
    assert "not a run" in ask("embed", str(tmp_path / "nowhere"), "a", code=2).stderr
    torch.save({}, tmp_path / "pytorch_model.bin")
    assert "a pickle" in ask("embed", str(tmp_path / "pytorch_model.bin"), "a", code=2).stderr


def test_a_task_without_vectors_is_refused(tmp_path):
    run = rc.train("dates", task="translate", model="cho", budget="1steps", width=8, out=tmp_path / "run")
    with pytest.raises(ValueError, match="the task translate has no vectors of texts"):
        run.embed(["a"])
    with pytest.raises(ValueError, match="expected a list of texts"):
        rc.embed(run, "a")
