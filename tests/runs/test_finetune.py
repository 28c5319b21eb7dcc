"""Masked training and fine-tuning through every verb: from runs and folders of weights, killed and resumed, refused."""

from __future__ import annotations

import json
import shutil

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file

import recollect as rc
from command_line import ask, check_killed_and_resumed
from recollect.evaluation.label_metrics import MEASURES
from recollect.models.inherited import body_of
from recollect.models.language import LEARNED
from recollect.runs.parent import digest_of
from recollect.tasks.classify import ClassifyTask

TEXT = "the cat sat on the mat .\nthe dog ran to the cat .\na bird saw the dog .\n" * 60
SMALL = {"width": 16, "batch_size": 4, "steps": 16}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def parents(book, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parents")
    for family in ("lstm", "transformer"):
        rc.train(book, model=family, budget="4steps", out=folder / family, tokenizer="word", **SMALL)
    for family in ("bilstm", "bert"):
        rc.train(
            book,
            task="masked",
            model=family,
            budget="4steps",
            out=folder / family,
            tokenizer="bpe",
            vocab_size=300,
            **SMALL,
        )
    rc.train(book, model="markov", out=folder / "markov")
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Return a folder in the layout of Hugging Face: BERT with WordPiece, [CLS] and [SEP]."""
    folder = tmp_path_factory.mktemp("foreign")
    symbols = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *"abcdefghijklmnopqrstuvwxyz",
        *(f"##{c}" for c in "aeiourst"),
    ]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({s: i for i, s in enumerate(symbols)}, unk_token="[UNK]")
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(0)
    model = rc.MaskedModel(vocab_size=len(symbols), width=16, heads=2, layers=2, max_length=64, masked=False)
    rc.save_pretrained(model, folder, rc.PretrainedTokenizer(backend))
    return folder


@pytest.mark.parametrize("family", ["bert", "bilstm"])
def test_a_masked_run_through_every_verb(family, book, tmp_path):
    folder = str(tmp_path / "run")
    words = [
        "--task",
        "masked",
        "-m",
        family,
        "--budget",
        "6steps",
        "--batch",
        "4",
        "--steps",
        "24",
        "--tokenizer",
        "word",
    ]
    done = ask("train", book, *words, "--width", "16", "--set", "next_sentence=true", "--out", folder)
    assert f"Next: recollect predict {folder}" in done.stderr
    rows = json.loads(ask("evaluate", folder, "--json").stdout)["rows"]
    assert [row["read"] for row in rows] == ["masked", "unigram", "uniform"]
    assert all({"loss", "accuracy", "next_sentence"} == set(row) - {"read"} for row in rows)
    found = json.loads(ask("predict", folder, "the [MASK] sat on the [MASK] .", "--nbest", "4", "--json").stdout)
    logs = [one["logprob"] for one in found["targets"]]
    assert len(logs) == 4
    assert logs == sorted(logs, reverse=True)
    assert not any("[" in one["text"] for one in found["targets"])
    assert rc.load(folder).embed(["the cat .", "a dog"]).shape == (2, 16 if family == "bert" else 32)
    assert "A masked language model" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "expected a text with [MASK]" in ask("predict", folder, "the cat", code=2).stderr


def test_a_masked_model_learns_more_than_counts(book, tmp_path):
    settings = {"tokenizer": "word", "width": 32, "batch_size": 16, "steps": 32, "rate": 5e-3, "dropout": 0.0}
    trained = rc.train(book, task="masked", model="bilstm", budget="80steps", out=tmp_path / "run", **settings)
    rows = trained.evaluate().rows
    assert rows["masked"]["loss"] < 0.5 * rows["unigram"]["loss"]
    assert rows["masked"]["accuracy"] > rows["unigram"]["accuracy"] + 0.2
    assert trained.predict("the dog [MASK] to the cat .")[0].targets[0].text == "the dog ran to the cat ."


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted({*LEARNED} - {"lstm", "transformer"}))
def test_every_family_of_language_models_hands_its_body_on(family, book, tmp_path):
    own = {"steps": 16, "batch_size": 4, "tokenizer": "word", "width": 16}
    parent = rc.train(book, model=family, budget="2steps", out=tmp_path / "parent", **own)
    for data in ("kindness:count=60", "verbs:count=60"):
        made = rc.finetune(parent, data, budget="2steps", out=tmp_path / data.partition(":")[0], unfreeze=0.5)
        again = rc.load(made.folder)
        assert again.evaluate().value == made.evaluate().value
        assert again.predict("the duck swims .")[0].targets
        frozen = rc.finetune(parent, data, budget="2steps", out=tmp_path / f"frozen-{data[:4]}", frozen=True)
        theirs = body_of(parent.model)[1].parameters()
        assert all(
            torch.equal(one, other) for one, other in zip(frozen.model.encoder.parameters(), theirs, strict=True)
        )


@pytest.mark.parametrize("family", ["lstm", "transformer", "bilstm", "bert"])
@pytest.mark.parametrize("data", ["kindness:count=60", "verbs:count=60"])
def test_every_parent_hands_its_body_to_every_labelling_task(family, data, parents, tmp_path):
    made = rc.finetune(parents / family, data, budget="2steps", out=tmp_path / "run", layer_decay=0.5, unfreeze=0.5)
    known = made.config().transfer
    assert known.parent == str(parents / family)
    assert known.digest == digest_of(parents / family)
    assert known.digest[:16] in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    first = next(p for p in made.model.encoder.parameters() if p.dim() > 1)
    again = rc.load(tmp_path / "run")
    assert torch.equal(first, next(p for p in again.model.encoder.parameters() if p.dim() > 1))
    assert again.evaluate().value == made.evaluate().value
    assert again.predict("the duck swims .")[0].targets


def test_the_weights_of_the_body_are_the_parents_and_frozen_they_stay(parents, tmp_path):
    made = rc.finetune(parents / "bert", "kindness:count=60", budget="5steps", out=tmp_path / "run", frozen=True)
    theirs = rc.load(parents / "bert").model
    for ours, old in zip(made.model.encoder.parameters(), theirs.body.parameters(), strict=True):
        assert torch.equal(ours, old)
    assert torch.equal(made.model.embedding.embedding.table.weight, theirs.embedding.table.weight)
    assert made.model.classify(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 2)


def test_lora_leaves_an_ordinary_model_with_other_weights(parents, tmp_path):
    made = rc.finetune(
        parents / "transformer", "kindness:count=60", budget="5steps", out=tmp_path / "run", lora_rank=2, rate=0.05
    )
    plain = rc.finetune(parents / "transformer", "kindness:count=60", budget="1steps", out=tmp_path / "other")
    saved, names = (load_file(one.folder / "model.safetensors") for one in (made, plain))
    assert set(saved) == set(names)
    theirs = rc.load(parents / "transformer").model
    moved = made.model.encoder.layers[0].mixer.qkv.weight - theirs.body[1].mixer.qkv.weight
    assert torch.linalg.matrix_rank(moved, atol=1e-6) == 2
    assert torch.equal(made.model.embedding.table.weight, theirs.body[0].table.weight)
    for path in (tmp_path / "run").glob("model.safetensors"):
        path.unlink()
    restored = rc.load(tmp_path / "run")
    torch.testing.assert_close(restored.model.state_dict(), made.model.state_dict())


def test_training_is_continued_on_another_text(parents, book, tmp_path):
    lstm = rc.load(parents / "lstm")
    made = lstm.finetune(book, task="language", budget="3steps", out=tmp_path / "run", batch_size=4, steps=16)
    before = json.loads((parents / "lstm" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    begun = made.metrics()[0]
    assert begun["valid_loss"] == pytest.approx(before["valid_loss"], rel=1e-5)
    assert made.generate("the", tokens=3).startswith("the")
    masked = rc.finetune(
        parents / "bert", book, task="masked", budget="2steps", out=tmp_path / "masked", batch_size=4, steps=16
    )
    assert masked.predict("the [MASK] sat")[0].targets


def test_other_peoples_weights_are_classified_and_tagged_with_their_tokenizer(foreign, tmp_path):
    made = rc.finetune(foreign, "verbs:count=60", budget="3steps", out=tmp_path / "tags", crf=True)
    assert made.tokenizer.frame == (2, 3)
    found = made.predict("they fish daily")[0].targets[0].text.split()
    assert len(found) == 3
    again = rc.load(tmp_path / "tags")
    assert again.tokenizer.encode("a b").tolist() == rc.from_pretrained(foreign).tokenizer.encode("a b").tolist()
    assert again.evaluate().value == made.evaluate().value
    mood = rc.finetune(foreign, "kindness:count=60", budget="2steps", out=tmp_path / "mood")
    assert rc.load(mood.folder).predict("good film")[0].targets


def test_gpt2_is_trained_further(tmp_path, book):
    torch.manual_seed(0)
    model = rc.LanguageModel("transformer", 256, width=16, heads=2, layers=1, max_length=32, head_bias=False)
    rc.save_pretrained(model, tmp_path / "gpt2", rc.Tokenizer("byte"))
    made = rc.finetune(
        tmp_path / "gpt2", book, task="language", budget="2steps", out=tmp_path / "run", batch_size=4, steps=16
    )
    again = rc.load(made.folder)
    assert again.generate("the cat", tokens=4, greedy=True) == made.generate("the cat", tokens=4, greedy=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "own"),
    [
        (["train", "--task", "masked", "-m", "bert"], ["next_sentence=true", "width=16", "steps=24"]),
        (["finetune", "lstm"], ["unfreeze=0.7", "layer_decay=0.5", "average=0.9"]),
        (["finetune", "bert"], ["lora_rank=2", "dropout=0.2"]),
    ],
)
def test_killed_and_resumed_it_ends_bit_equal(verb, own, parents, book, tmp_path):
    data = book if verb[0] == "train" else "kindness:count=100"
    place = [str(parents / verb[1]), data] if verb[0] == "finetune" else [data, *verb[1:]]
    options = [
        "--budget",
        "40steps",
        "--batch",
        "4",
        *(w for one in (*own, "evaluate_every=4") for w in ("--set", one)),
    ]
    check_killed_and_resumed(verb[0], *place, *options, folder=tmp_path)


def test_stopped_and_resumed_with_stages_it_is_bit_equal(parents, tmp_path):
    options = {"unfreeze": 0.9, "layer_decay": 0.5, "evaluate_every": 3, "schedule": "constant", "dropout": 0.2}
    whole = rc.finetune(parents / "lstm", "kindness:count=60", budget="10steps", out=tmp_path / "whole", **options)
    part = rc.finetune(parents / "lstm", "kindness:count=60", budget="10steps", out=tmp_path / "part", **options)
    for path in part.checkpoints.glob("step-0000001*"):
        shutil.rmtree(path)
    ask("resume", str(part.folder))
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (whole, part))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_frozen_body_reads_every_text_once_and_the_head_learns_the_same(pooling, parents, tmp_path, monkeypatch):
    options = {"frozen": True, "evaluate_every": 5, "pooling": pooling, "dropout": 0.0, "budget": "30steps"}
    read = []
    pooled = rc.Classifier.pooled
    monkeypatch.setattr(
        rc.Classifier, "pooled", lambda self, x, *a, **k: read.append(len(x)) or pooled(self, x, *a, **k)
    )
    once = rc.finetune(parents / "bert", "kindness:count=100", out=tmp_path / "once", **options)
    assert [count for count in read if count > 1] == [80, 10]  # one more text is read for the card
    monkeypatch.setattr(ClassifyTask, "with_features", lambda self, model, dataset: dataset)
    again = rc.finetune(parents / "bert", "kindness:count=100", out=tmp_path / "again", **options)
    assert sum(read) > 800
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (once, again))
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    assert once.evaluate().value == again.evaluate().value


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_class_token_has_a_place_beside_a_text_that_fills_the_table(family, parents, tmp_path):
    parent = parents / "bert"  # a table of 16 positions
    if family == "gpt2":
        model = rc.LanguageModel("transformer", 256, width=16, heads=2, layers=1, max_length=16, head_bias=False)
        rc.save_pretrained(model, tmp_path / "gpt2", rc.Tokenizer("byte"))
        parent = tmp_path / "gpt2"
    data = tmp_path / "long.csv"
    rows = "".join(
        f"the {'cat' if i % 2 else 'dog'} sat on the mat and ran to a bird and a dog {i},{i % 2}\n" for i in range(30)
    )
    data.write_text("text,label\n" + rows, encoding="utf-8")
    run = rc.finetune(parent, str(data), task="classify", budget="2steps", out=tmp_path / "run", pooling="class-token")
    assert max(len(ids) for ids in run.dataset().train.ids) == 15
    again = rc.load(run.folder)
    assert again.tokenizer.most == 15
    assert again.predict("the cat sat on the mat " * 5)[0].targets
    plain = rc.finetune(parent, str(data), task="classify", budget="1steps", out=tmp_path / "plain")
    assert max(len(ids) for ids in plain.dataset().train.ids) == 16


def test_where_the_vectors_change_in_training_texts_are_read_anew(parents, tmp_path):
    def has_features(**own):
        run = rc.finetune(parents / "bert", "kindness:count=60", budget="1steps", frozen=True, **own)
        dataset = run.dataset()
        run.prepare(model := run.build())
        return run.task.with_features(model, dataset).train.features is not None

    assert has_features(out=tmp_path / "mean")
    assert not has_features(out=tmp_path / "attention", pooling="attention")
    assert not has_features(out=tmp_path / "hidden", word_dropout=0.1)


def test_a_frozen_run_resumes_bit_equal(parents, tmp_path):
    options = {"frozen": True, "evaluate_every": 3, "schedule": "constant", "dropout": 0.2, "budget": "10steps"}
    whole, part = (
        rc.finetune(parents / "bert", "kindness:count=60", out=tmp_path / name, **options) for name in ("whole", "part")
    )
    for path in part.checkpoints.glob("step-0000001*"):
        shutil.rmtree(path)
    ask("resume", str(part.folder))
    ours, theirs = (load_file(one.folder / "model.safetensors") for one in (whole, part))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_accuracy_stops_a_fine_tuning_whatever_the_loss_does(parents, tmp_path, monkeypatch):
    """Accuracy is best at the third of the evaluations, after which the loss goes on falling: patience counts on."""
    accuracies, losses = [0.4, 0.5, 0.8, 0.7, 0.7, 0.9], [0.9, 0.8, 0.95, 0.6, 0.5, 0.4]
    kept, given = [], iter(zip(accuracies, losses, strict=True))

    def scripted(self, model, dataset, split, limit=None):
        kept.append(model.head.weight.detach().clone())
        accuracy, loss = next(given)
        measures = {"accuracy": MEASURES["accuracy"], "loss": MEASURES["loss"]}
        return rc.Scores(measures, {"labels": {"accuracy": accuracy, "loss": loss}})

    monkeypatch.setattr(ClassifyTask, "measure", scripted)
    run = rc.finetune(
        parents / "lstm", "kindness:count=60", budget="50steps", out=tmp_path / "run", evaluate_every=1, patience=2
    )
    assert len(kept) == 5  # two evaluations after the best one
    assert torch.equal(run.model.head.weight, kept[2])
    assert not torch.equal(kept[4], kept[2])


def test_without_a_checkpoint_it_begins_again_from_the_same_parent_only(parents, tmp_path):
    mother = tmp_path / "mother"
    shutil.copytree(parents / "lstm", mother)
    made = rc.finetune(mother, "kindness:count=60", budget="3steps", out=tmp_path / "run")
    first = load_file(made.folder / "model.safetensors")
    shutil.rmtree(made.checkpoints)
    (made.folder / "model.safetensors").unlink()
    ask("resume", str(made.folder))
    again = load_file(made.folder / "model.safetensors")
    assert all(torch.equal(first[name], again[name]) for name in first)
    shutil.rmtree(made.checkpoints)
    rc.save_weights(rc.GRU(2, 2), mother / "other.safetensors")
    assert "not the weights that the run was started from" in ask("resume", str(made.folder), code=2).stderr


# ---- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parent", "words", "error"),
    [
        ("markov", ["kindness:count=60"], "a markov model counts and has no layers to adapt"),
        ("lstm", ["BOOK", "--task", "masked"], "reads from left to right and has learned no [MASK]"),
        ("bert", ["BOOK", "--task", "language"], "sees both sides of a symbol and predicts none from the left"),
        ("lstm", ["sine", "--task", "forecast"], "forecast begins from no trained model; expected classify, tag"),
        ("lstm", ["kindness:count=60", "--width", "8"], "width: the trained model decides it; settings"),
        ("lstm", ["kindness:count=60", "--lowercase", "true"], "lowercase: got true, but the tokenizer of"),
        ("lstm", ["kindness:count=60", "--unfreez", "0.5"], "unfreez: no such setting"),
        ("lstm", ["kindness:count=60", "--unfreeze", "2"], "unfreeze: got 2, expected"),
        ("lstm", ["kindness:count=60", "--set", "lora_alpha=32"], "lora_alpha: got 32, but without lora_rank=N"),
        ("lstm", ["kindness:count=60", "--set", "lora_targets=qkv"], 'lora_targets: got "qkv", but without'),
        ("lstm", ["kindness:count=60", "--lora-rank", "1000"], "lora_rank: got 1000, expected at most 16, the rank of"),
        ("lstm", ["tones:count=20"], "tones:count=20: recordings, but the trained model reads text"),
        ("bert", ["BOOK", "--task", "masked", "--set", "steps=64"], "steps: got 64, expected at most 16"),
        ("nowhere", ["kindness:count=60"], "nowhere: not a run"),
    ],
)  # fmt: skip
def test_what_cannot_begin_is_refused(parent, words, error, parents, book, tmp_path):
    words = [book if word == "BOOK" else word for word in words]
    done = ask("finetune", str(parents / parent), *words, "--budget", "2steps", "--out", str(tmp_path / "run"), code=2)
    assert error in done.stderr, done.stderr
    assert not (tmp_path / "run" / "config.json").exists()


def renamed(tensors):
    moved = tensors.pop("body.layers.1.weight_ih")
    return {**tensors, "body.layers.1.weight_ix": moved}


def reshaped(tensors):
    return {**tensors, "body.layers.1.bias_ih": torch.ones(3)}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (renamed, "missing body.layers.1.weight_ih (nearest: body.layers.1.weight_ix"),
        (lambda tensors: {**tensors, "surplus": torch.ones(1)}, "extra surplus"),
        (reshaped, "body.layers.1.bias_ih has the shape [64], but model.safetensors holds [3]"),
    ],
)
def test_weights_that_do_not_fit_are_named(change, error, parents, tmp_path):
    shutil.copytree(parents / "lstm", tmp_path / "lm")
    shutil.rmtree(tmp_path / "lm" / "checkpoints")
    path = tmp_path / "lm" / "model.safetensors"
    save_file(change(load_file(path)), path)
    done = ask("finetune", str(tmp_path / "lm"), "kindness:count=60", code=2)
    assert error in done.stderr, done.stderr


def test_a_pickle_is_refused_with_the_reason(parents, foreign, tmp_path):
    shutil.copytree(parents / "lstm", tmp_path / "lm")
    shutil.rmtree(tmp_path / "lm" / "checkpoints")
    torch.save({"a": torch.ones(1)}, tmp_path / "lm" / "model.safetensors")
    assert (
        "a pickle, which can run any code" in ask("finetune", str(tmp_path / "lm"), "kindness:count=60", code=2).stderr
    )
    shutil.copytree(foreign, tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").unlink()
    torch.save({"a": torch.ones(1)}, tmp_path / "bert" / "pytorch_model.bin")
    assert (
        "a pickle, which can run any code"
        in ask("finetune", str(tmp_path / "bert"), "kindness:count=60", code=2).stderr
    )
