"""Captioning as a user types it: train, resume, predict on pictures, evaluate, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from command_line import ask, run
from going_on import check_goes_on_bit_equal
from recollect.data.synthetic.shapes import shapes
from recollect.generation.captions import caption, patient
from recollect.generation.settings import Search
from recollect.models.captioning import FAMILIES
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def small(family: str = "show-attend-tell", **options) -> RunConfig:
    settings = {"max_steps": 10, "batch_size": 8, "evaluate_every": 5} | options
    return RunConfig.make("shapes:count=100", family, task="caption", **settings)


@pytest.mark.parametrize(
    ("family", "alignment"), [*((family, "soft") for family in FAMILIES), ("show-attend-tell", "hard")]
)
def test_every_family_trains_and_captions(family, alignment, tmp_path):
    rows, folder = [], Run(tmp_path / "run")
    given = {"alignment": alignment} if family == "show-attend-tell" else {}
    assert begin(small(family, **given), folder, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert losses[-1] < losses[0]
    assert folder.model.config.alignment == alignment
    assert rows[-1]["sample"].startswith("shapes:count=100#")
    said = folder.predict("shapes:count=3", beam=2, nbest=2)
    assert [row.source for row in said] == [f"shapes:count=3#{n}" for n in range(3)]
    assert all(len(row.targets) == 2 for row in said)
    assert Run(tmp_path / "run").predict(folder.prompt())[0].source == folder.prompt()  # what is said to be next


@pytest.mark.slow
def test_the_whole_way(tmp_path):
    images, english, _ = shapes(100)
    names = [line.split()[2] for line in english]  # the colour of the first shape: learned in a few seconds
    pictures, out = tmp_path / "pictures", str(tmp_path / "run")
    pictures.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(pictures / f"{number:03}.png")
    lines = [f"{number:03}.png\t{name}" for number, name in enumerate(names)]
    (pictures / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--task", "caption", "-m", "transformer", "--budget", "80steps", "--set", "evaluate_every=80"]
    trained = run("train", str(pictures), *options, "--out", out)
    assert f"recollect predict {out} {pictures}/" in trained.stderr
    one = f"{pictures}/007.png"
    assert run("predict", out, one).stdout == f"{one}\t{names[7]}\n"
    every = ask("predict", out, str(pictures), "--beam", "1").stdout.splitlines()
    assert [line.partition("\t")[0] for line in every] == [f"{pictures}/{n:03}.png" for n in range(100)]
    right = sum(line.endswith(f"\t{name}") for line, name in zip(every, names, strict=True))
    assert right >= 80, right
    result = json.loads(ask("evaluate", out, str(pictures), "--json").stdout)
    assert [row["read"] for row in result["rows"]] == ["captions given", "greedy", "beam 5"]
    assert result["rows"][1]["exact"] == right / 100
    assert Run(out).evaluate().details["pairs"] == 5
    assert "An image captioner" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


def test_a_captioner_goes_on_bit_equal(tmp_path):
    check_goes_on_bit_equal(small(alignment="hard", dropout=0.1), tmp_path)


def test_a_picture_is_captioned_alike_alone_and_among_others(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small(), folder, lambda row: None)
    model, tokenizer = folder.model.double(), folder.tokenizer
    pictures = folder.dataset().train.pictures[:10]
    together = caption(model, tokenizer, pictures, patient(3, 12, nbest=3))
    alone = [caption(model, tokenizer, pictures[n : n + 1], patient(3, 12, nbest=3))[0] for n in range(10)]
    assert [[one.text for one in found] for found in together] == [[one.text for one in found] for found in alone]


def test_a_patient_beam_is_no_less_likely_than_greedy(tmp_path):
    folder = Run(tmp_path / "run")
    begin(small("transformer", max_steps=60, batch_size=16), folder, lambda row: None)
    model, tokenizer = folder.model, folder.tokenizer
    pictures = folder.dataset().train.pictures[:40]
    greedy, wide = (caption(model, tokenizer, pictures, patient(width, 20)) for width in (1, 5))
    hasty = caption(model, tokenizer, pictures, Search(width=5, tokens=20))
    scores = [sum(found[0].score for found in said) for said in (greedy, wide, hasty)]
    assert scores[1] >= scores[0]
    assert scores[1] > scores[2]  # which stopped at the first five that ended


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train", "shapes", "--task", "caption", "-m", "lstm"], "expected one of show-attend-tell, transformer"),
        (["train", "shapes", "--task", "captions"], "did you mean caption?"),
        (["train", "shapes:size=3", "--task", "caption", "-m", "transformer"], "it takes count, seed, chinese"),
        (["train", "shapes", "--task", "caption", "--set", "alignment=firm"], "soft, hard"),
    ],
)
def test_bad_words_are_refused(words, error, tmp_path):
    assert error in ask(*words, "--out", str(tmp_path / "run"), code=2).stderr


def test_a_picture_of_another_size_is_refused_by_name(tmp_path):
    out, picture = str(tmp_path / "run"), tmp_path / "small.png"
    begin(small(max_steps=1), Run(out), lambda row: None)
    Image.fromarray(np.zeros((16, 20, 3), dtype=np.uint8)).save(picture)
    error = f"{picture}: got a picture of 16×20×3, expected 32×32×3, as those that the run was trained on"
    assert error in ask("predict", out, str(picture), code=2).stderr
    assert f"recollect predict {out} INPUT" in ask("generate", out, "a", code=2).stderr
    assert "--maps" in ask("predict", out, "shapes:count=1", "--maps", str(tmp_path / "page.html"), code=2).stderr


def test_a_training_on_pictures_is_planned():
    facts = json.loads(ask("plan", "shapes:count=60", "--budget", "20steps", "--json").stdout)
    assert facts["fits"]
    assert (facts["updates"], facts["family"]) == (20, "show-attend-tell")
