"""Frames in place of ids through every verb: a spoken digit is named, a string of them is spelled."""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest
import torch

import recollect as rc
from command_line import ask, check_killed_and_resumed, run
from recollect.data.synthetic.tones import RATE, generated_tones
from recollect.models.classification import BAGS, CLASSIFIERS
from recollect.models.translation import FAMILIES, TranslationConfig
from tiers import slow_after


def save(path, samples, channels=1, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes((np.asarray(samples) * 32767).astype("<i2").tobytes())
    return str(path)


def test_a_digit_is_named_from_files_of_ones_own(tmp_path):
    for number, (samples, label) in enumerate(generated_tones("tones:count=200")):
        save(tmp_path / "digits" / label / f"{number}.wav", samples)
    data, folder = str(tmp_path / "digits"), str(tmp_path / "run")
    options = ["--set", "width=24", "--set", "rate=0.02", "--set", "word_dropout=0.1", "--budget", "60steps"]
    trained = ask("train", data, "-m", "gru", *options, "--out", folder)
    assert f"Next: recollect predict {folder}" in trained.stderr
    scores = json.loads(ask("evaluate", folder, "--json").stdout)
    assert scores["rows"][0]["accuracy"] >= 0.9
    samples, digit = next(generated_tones("tones:count=1,seed=8"))
    path = save(tmp_path / "new.wav", samples)
    assert ask("predict", folder, path).stdout.splitlines()[0].split("\t")[::2] == [path, digit]
    found = rc.load(folder).predict([path, "tones:count=1,seed=8"])
    assert [one.targets[0].text for one in found] == [digit, digit]
    assert rc.load(folder).evaluate("tones:count=50,seed=3").value >= 0.9
    assert "log-mel bands" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    for change, error in (({"channels": 2}, "2 channels, expected 1"), ({"rate": 16000}, "16000 samples a second")):
        bad = save(tmp_path / "bad.wav", samples, **change)
        assert f"bad.wav: {error}" in ask("predict", folder, bad, code=2).stderr
    assert "nowhere.wav: no such file" in ask("predict", folder, str(tmp_path / "nowhere.wav"), code=2).stderr
    (tmp_path / "digits" / "5" / "empty.wav").write_bytes(b"")
    error = "empty.wav: not a .wav that can be read"
    assert error in ask("train", data, "-m", "gru", "--out", str(tmp_path / "no"), code=2).stderr
    bag = ask("train", "tones", "-m", "bag-of-words", "--out", str(tmp_path / "no"), code=2)
    assert "bag-of-words, which reads words" in bag.stderr


@pytest.mark.parametrize("family", slow_after(3, [name for name in CLASSIFIERS if name not in BAGS]))
def test_every_family_reads_frames(family, tmp_path):
    made = rc.train("tones:count=120", model=family, budget="2steps", out=tmp_path / "run", bands=12)
    x = torch.randn(1, 5, 12)
    assert torch.equal(made.model(x)[0], rc.load(tmp_path / "run").model(x)[0])
    assert {row.name for row in made.task.baselines(made.dataset())} == {"most frequent label", "nearest mean frame"}


@pytest.mark.parametrize("family", slow_after(2, ("luong", *(name for name in FAMILIES if name != "luong"))))
def test_every_translator_reads_frames(family, tmp_path):
    made = rc.train("tone-strings:count=40", model=family, budget="2steps", out=tmp_path / "run", width=16, bands=12)
    names = ["tone-strings:count=2,seed=5"]
    ours, theirs = made.predict(names), rc.load(tmp_path / "run").predict(names)
    assert ours == theirs
    assert len(ours) == 2


def test_encoders_of_frames_keep_the_laws():
    rc.check_layer(rc.Classifier("gru", labels=3, vocab_size=1, frames=6, width=8, layers=1).double().eval())
    config = TranslationConfig("bahdanau", 1, 7, width=8, frames=6)
    model = rc.Translator(config).double().eval()
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    valid = torch.arange(9) < torch.tensor([[9], [5]])
    poisoned = x.masked_fill(~valid[..., None], torch.nan)
    assert model.remember(poisoned, valid).equals(model.remember(x, valid), 0.0)


@pytest.mark.slow
def test_a_string_of_digits_is_spelled_and_the_alignment_moves_to_the_right(tmp_path):
    made = rc.train(
        "tone-strings:count=1500", budget="600steps", out=tmp_path / "run", width=48, rate=0.005, model="bahdanau"
    )
    scores = made.evaluate()
    assert scores.rows["beam 5"]["symbols"] > 0.9
    name = "tone-strings:count=1,seed=77, 1"
    ((_, digits),) = generated_tones("tone-strings:count=1,seed=77")
    assert made.predict(name)[0].targets[0].text == digits
    look = made.attention(name, digits)
    centres = look["weights"][: len(digits)].argmax(1)
    assert (np.diff(centres) >= 0).all()  # one state of a bidirectional encoder may hold two digits
    assert centres[-1] - centres[0] >= len(look["source"]) // 2
    assert len(look["source"]) == look["weights"].shape[1]
    page = tmp_path / "page.html"
    ask("predict", str(tmp_path / "run"), name, "--maps", str(page))
    assert "0.03" in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(("data", "model"), [("tones:count=100", "bigru"), ("tone-strings:count=100", "luong")])
def test_killed_and_resumed_it_ends_bit_equal(data, model, tmp_path):
    settings = ("evaluate_every=4", "dropout=0.2", "width=16", "average=0.9")
    options = ["-m", model, "--budget", "40steps", *(word for one in settings for word in ("--set", one))]
    whole, killed = check_killed_and_resumed("train", data, *options, folder=tmp_path)
    name = f"{data.partition(':')[0]}:count=1,seed=3"
    typed = json.loads(run("predict", killed, name, "--json").stdout)
    assert typed["targets"][0]["text"] == rc.load(whole).predict(name)[0].targets[0].text
