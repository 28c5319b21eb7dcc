"""A trained model as the encoder of a translator and of a matcher, and other people's masked models trained further."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tokenizers
import torch

import recollect as rc
from command_line import ask, check_killed_and_resumed
from recollect.layers.recurrent.recurrence import Hidden
from recollect.models.encoders import InheritedEncoder
from recollect.models.inherited import body_of
from recollect.models.translation import heirs_of, inherited_config
from recollect.training.transfer import Transfer
from tiers import slow_after

TEXT = "the cat sat on the mat .\nthe dog ran to the cat .\na bird saw the dog .\n" * 60
VERBS = ("sat", "ran", "saw", "on", "to")
PAIRS = "".join(f"the {a} {b} .\t{b} {a}\n" for a in ("cat", "dog", "bird", "mat") for b in VERBS)
SMALL = {"width": 16, "batch_size": 4, "steps": 64}
REPORT = "on 3 june a fire cut off the power in holt , a witness said . | when ?"
WHO = "who chased the cat ? | the dog chased the cat . | the cat chased the dog ."
TRANSLATORS = (
    ("lstm", None, "luong"),
    ("bilstm", None, "bahdanau"),
    ("bert", None, "transformer"),
    ("lstm", "sutskever", "sutskever"),
    ("gru", "cho", "cho"),
    ("gru", "static", "static"),
    ("transformer", None, "transformer"),
    ("window", None, "transformer"),
    ("ttt-linear", None, "transformer"),
    ("linear-attention", None, "transformer"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a text, pairs, and a trained model of every kind."""
    place = tmp_path_factory.mktemp("heirs")
    (place / "book.txt").write_text(TEXT, encoding="utf-8")
    (place / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def parent_of(folder):
    """Return a function from a family to the folder of a trained model, made when it is first asked for."""

    def made(family: str) -> Path:
        out = folder / family
        if not out.exists():
            is_masked = family in ("bilstm", "birnn", "bert")
            kind = {"tokenizer": "bpe", "vocab_size": 300} if is_masked else {"tokenizer": "char"}
            task = "masked" if is_masked else "language"
            book = str(folder / "book.txt")
            rc.train(book, task=task, model=family, budget="2steps", out=out, **kind, **SMALL)
        return out

    return made


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Return a folder in the layout of Hugging Face: a sentence encoder with WordPiece, without a head."""
    place = tmp_path_factory.mktemp("foreign")
    symbols = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz.?|", "the", "cat", "##s"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({s: i for i, s in enumerate(symbols)}, unk_token="[UNK]")
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.decoder = tokenizers.decoders.WordPiece()
    backend.add_special_tokens(symbols[:5])
    torch.manual_seed(0)
    model = rc.MaskedModel(vocab_size=len(symbols), width=16, heads=2, layers=2, max_length=64, masked=False)
    rc.save_pretrained(model, place, rc.PretrainedTokenizer(backend))
    return place


# ---- the encoder of a translator ---------------------------------------------------------------------


@pytest.mark.parametrize(("family", "asked", "made"), slow_after(3, TRANSLATORS))
def test_a_trained_model_is_the_encoder_of_a_translator(family, asked, made, folder, parent_of, tmp_path):
    parent = parent_of(family)
    words = ["finetune", str(parent), str(folder / "pairs.tsv"), "--task", "translate", "--budget", "3steps"]
    words += ["-m", asked] if asked else []
    done = ask(*words, "--set", "frozen=true", "--out", str(tmp_path / "run"))
    assert f"Next: recollect predict {tmp_path / 'run'}" in done.stderr
    found = rc.load(tmp_path / "run")
    assert found.model.config.family == made
    theirs = [p for part in body_of(rc.load(parent).model) for p in part.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(found.model.encoder.parameters(), theirs, strict=True))
    assert (
        found.assets["source_tokenizer"].encode("the cat").tolist()
        == rc.load(parent).tokenizer.encode("the cat").tolist()
    )
    assert found.evaluate(steps=8).value == rc.load(tmp_path / "run").evaluate(steps=8).value
    line = ask("predict", str(found.folder), "the cat sat .", "--json").stdout
    assert json.loads(line)["targets"][0]["text"] == found.predict(["the cat sat ."])[0].targets[0].text
    assert f" -m {made} " in found.config().command()  # without --task: the file says that it has pairs


def test_features_and_states_are_those_of_the_parent(parent_of):
    model = rc.load(parent_of("lstm")).model
    translator = rc.Translator(inherited_config(model, "luong", 9, {}))
    translator.adopt(model)
    ids = torch.randint(model.vocab_size, (2, 7))
    features, memory = model.features(ids)
    ours, states = translator.eval().encoder(ids)
    torch.testing.assert_close(ours, features)
    first = translator.remember(ids).state.layers
    theirs = [one for one in memory.layers if isinstance(one, Hidden)]
    assert len(first) == len(theirs) == len([one for one in states.layers if isinstance(one, Hidden)])
    torch.testing.assert_close(first[0].cell, theirs[0].cell)


def test_with_dropout_between_its_layers_the_states_are_found(tmp_path):
    model = rc.LanguageModel("gru", 12, width=8, layers=3, dropout=0.3)
    for family in heirs_of(model):
        translator = rc.Translator(inherited_config(model, family, 9, {})).eval()
        translator.adopt(model.eval())
        y, _ = translator(torch.tensor([[1, 2]]), translator.remember(torch.tensor([[3, 4, 5]])))
        assert y.shape == (1, 2, 9)
        assert [len(stage) for stage in translator.stages()] == [2, 2, 2, 2]


@pytest.mark.parametrize("family", slow_after(1, ("lstm", "transformer")))
def test_the_encoder_obeys_the_laws(family):
    model = rc.LanguageModel(family, 7, width=8, heads=2, layers=2)
    rc.check_layer(InheritedEncoder(*body_of(model)).double().eval())


def test_pre_training_shortens_the_way_of_a_translator(folder, tmp_path):
    """The decoder reads a frozen encoder: one that was trained says more of a source than one with new weights."""
    settings = {"width": 32, "batch_size": 16, "steps": 32, "rate": 1e-2, "tokenizer": "word", "dropout": 0.0}
    book = str(folder / "book.txt")
    rc.train(book, model="gru", budget="60steps", out=tmp_path / "lm", **settings)
    run = rc.finetune(
        tmp_path / "lm", str(folder / "pairs.tsv"), task="translate", budget="150steps", out=tmp_path / "run", rate=1e-2
    )
    assert run.metrics()[-1]["valid_loss"] < 0.5 * run.task.baselines(run.dataset())[0].value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "data", "own"),
    [
        ("bilstm", "pairs.tsv", ["--task", "translate", "--set", "unfreeze=0.5"]),
        ("gru", "reports:count=60", ["--set", "lora_rank=2", "--set", "batch_size=4"]),
        ("bert", "answers:count=60", ["--set", "dropout=0.2", "--set", "batch_size=4"]),
        ("foreign", "book.txt", ["--task", "masked", "--set", "steps=32", "--set", "batch_size=4"]),
    ],
)
def test_killed_and_resumed_it_ends_bit_equal(family, data, own, folder, parent_of, foreign, tmp_path):
    parent = str(foreign if family == "foreign" else parent_of(family))
    name = str(folder / data) if "." in data else data
    words = ["finetune", parent, name, *own, "--budget", "40steps", "--set", "evaluate_every=4"]
    check_killed_and_resumed(*words, folder=tmp_path)


def test_without_the_cache_the_pairs_are_read_again_with_the_parents_tokenizer(
    folder, parent_of, tmp_path, monkeypatch
):
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path / "one"))
    pairs = str(folder / "pairs.tsv")
    made = rc.finetune(parent_of("gru"), pairs, task="translate", budget="2steps", out=tmp_path / "run")
    value = made.evaluate(steps=5).value
    monkeypatch.setenv("RECOLLECT_CACHE", str(tmp_path / "two"))
    assert rc.load(tmp_path / "run").evaluate(steps=5).value == value


# ---- a matcher ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "data"), [("gru", "reports:count=40"), ("bert", "answers:count=40")])
def test_a_trained_model_is_the_encoder_of_a_matcher(family, data, parent_of, tmp_path):
    words = ["--task", "match", "--budget", "3steps", "--batch", "4", "--set", "frozen=true"]
    ask("finetune", str(parent_of(family)), data, *words, "--out", str(tmp_path / "run"))
    found = rc.load(tmp_path / "run")
    theirs = [p for part in body_of(rc.load(parent_of(family)).model) for p in part.parameters()]
    ours = [*found.model.inherited_embedding().parameters(), *found.model.encoder.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    question = REPORT if data.startswith("reports") else WHO
    answer = found.predict(question)[0].targets[0].text
    assert answer in question
    assert found.evaluate().value == rc.load(tmp_path / "run").evaluate().value
    inspected = rc.inspect(found, question)
    assert inspected is not None


def test_a_mark_that_a_trained_model_does_not_have_is_new_and_is_trained():
    parent = rc.LanguageModel("gru", 6, width=8, layers=1)
    model = matcher_of_six()
    model.adopt(parent)
    Transfer(frozen=True).prepare(model)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {
        "embedding.vector",
        "of_place.weight",
        "of_place.bias",
        "of_query.weight",
        "out.weight",
        "out.bias",
    }
    ids = torch.tensor([[1, 2, 6, 3, 4]])
    model.point(ids)[0, 0, 3].backward()
    assert model.embedding.vector.grad.abs().max() > 0
    with torch.no_grad():
        model.embedding.embedding.table.weight[0] = torch.nan  # the mark is no id of the parent
    assert model.point(ids).isfinite()[0, 0, 3:].all()


def matcher_of_six() -> rc.Matcher:
    body = {"kind": "language", "family": "gru", "vocab_size": 6, "width": 8, "layers": 1}
    return rc.Matcher(rc.MatcherConfig("gru", 7, width=8, layers=1, body=body, separator=6))


def test_with_somebody_elses_tokenizer_the_mark_is_its_sep(foreign, tmp_path):
    made = rc.finetune(foreign, "answers:count=40", budget="2steps", out=tmp_path / "run", batch_size=4)
    assert made.model.separator == 3
    one = made.dataset().test[0]
    assert one.ids[0][0] == 2
    assert one.ids[0][one.begins - 1] == 3
    assert max(len(ids) for ids in one.ids) <= 64
    assert made.predict(WHO)[0].targets[0].text.startswith("the ")


@pytest.mark.slow
def test_a_matcher_with_a_mark_of_its_own_obeys_the_laws():
    rc.check_layer(matcher_of_six().double().eval())


def test_an_answer_behind_what_the_model_reads_is_named(foreign, tmp_path):
    rows = [f"{'a b c d e f ' * 12}g{i} x\tx ?\tx\n" for i in range(20)]
    path = tmp_path / "long.tsv"
    path.write_text("text\tquery\tanswer\n" + "".join(rows), encoding="utf-8")
    words = ["finetune", str(foreign), str(path), "--task", "match", "--budget", "2steps"]
    said = ask(*words, "--out", str(tmp_path / "run"), code=2).stderr
    assert "long.tsv, line " in said
    assert "the answer 'x' stands behind the 64 symbols that the trained model reads" in said


# ---- other people's masked models --------------------------------------------------------------------


def test_other_peoples_weights_are_trained_further_on_a_text_of_ones_own(foreign, folder, tmp_path):
    book = str(folder / "book.txt")
    words = ["--task", "masked", "--budget", "3steps", "--batch", "4", "--set", "steps=32"]
    ask("finetune", str(foreign), book, *words, "--out", str(tmp_path / "run"))
    found = rc.load(tmp_path / "run")
    answer = found.predict("the [MASK] sat .")[0].targets[0].text
    assert answer.startswith("the ")
    assert "[" not in answer
    assert (
        found.tokenizer.encode("the cats").tolist() == rc.from_pretrained(foreign).tokenizer.encode("the cats").tolist()
    )
    assert found.tokenizer.decode(found.tokenizer.encode("the [MASK] cats")) == "the [MASK] cats"
    assert {row["read"] for row in json.loads(ask("evaluate", str(found.folder), "--json").stdout)["rows"]} == {
        "masked",
        "unigram",
        "uniform",
    }
    ask("export", str(found.folder), "--to", "hf", "--out", str(tmp_path / "hf"))
    torch.testing.assert_close(rc.embed(tmp_path / "hf", ["the cat"]), found.embed(["the cat"]))
    tagged = rc.finetune(found.folder, "verbs:count=60", budget="2steps", out=tmp_path / "tags")
    assert tagged.tokenizer.frame == (2, 3)
    assert len(tagged.predict("they fish daily")[0].targets[0].text.split()) == 3


def test_a_tokenizer_without_a_mask_is_refused(folder, tmp_path):
    model = rc.MaskedModel(vocab_size=256, width=16, heads=2, layers=1, max_length=64)
    rc.save_pretrained(model, tmp_path / "bare", rc.Tokenizer("byte"))
    said = ask("finetune", str(tmp_path / "bare"), str(folder / "book.txt"), "--task", "masked", code=2).stderr
    assert "[MASK]: not a symbol of this tokenizer" in said


# ---- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "words", "error"),
    [
        ("rnn", [], "the cells of rnn: the encoder's last state begins the decoder, whose cells are of the same kind"),
        ("lstm", ["-m", "bahdanau"], "begins only luong or sutskever or cho or static in the task translate; leave -m"),
        ("bert", ["-m", "luong"], "begins only transformer in the task translate; leave -m out"),
        ("lstm", ["--set", "joint=true"], "joint: got true, but the tokenizer of"),
        ("lstm", ["--set", "layers=2"], "layers: the trained model decides it; settings of the model are dropout"),
        ("lstm", ["--set", "heads=2"], "heads: luong does not use it"),
    ],
)  # fmt: skip
def test_what_is_no_encoder_is_refused(family, words, error, folder, parent_of, tmp_path):
    given = ["finetune", str(parent_of(family)), str(folder / "pairs.tsv"), "--task", "translate", *words]
    said = ask(*given, "--out", str(tmp_path / "run"), code=2).stderr
    assert error in said, said
    assert not (tmp_path / "run" / "config.json").exists()


def test_recordings_are_no_sources_of_a_model_of_text(parent_of, tmp_path):
    given = ["finetune", str(parent_of("lstm")), "tone-strings:count=20", "--budget", "2steps"]
    said = ask(*given, "--out", str(tmp_path / "run"), code=2).stderr
    assert "recordings, but the trained model reads text" in said
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
