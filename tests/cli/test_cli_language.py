"""Training, resuming, evaluating and speaking, as a user types them; and everything they refuse."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from safetensors.torch import load_file

from command_line import ask, run
from recollect.cli.main import command
from recollect.core.serialize import FileError
from recollect.models.language import FAMILIES
from recollect.runs.config import RunConfig
from recollect.runs.run import Run
from recollect.runs.train import begin
from recollect.training.state import Diverged

FEW, GREEDY = "recall:count=2000", {"tokens": 20, "greedy": True}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def small(family: str = "gru", **options) -> RunConfig:
    settings = {"max_steps": 12, "batch_size": 8, "steps": 32, "evaluate_every": 12, "data": FEW} | options
    return RunConfig.make(model=family, **settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_speaks_and_comes_back(family, tmp_path):
    rows = []
    folder = Run(tmp_path / "run")
    assert begin(small(family), folder, rows.append)
    losses = [row["valid_loss"] for row in rows if "valid_loss" in row]
    assert losses[-1] < losses[0] or family == "markov"
    said = folder.generate("a1 b2", **GREEDY)
    assert len(said) == 25
    assert Run(tmp_path / "run").generate("a1 b2", **GREEDY) == said


@pytest.mark.slow
def test_the_whole_way(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abcdefgh " * 400, encoding="utf-8")
    out = str(tmp_path / "run")
    trained = run("train", str(text), "-m", "lstm", "--budget", "60steps", "--out", out, "--steps", "32")
    assert "valid" in trained.stdout
    assert f"recollect generate {out}" in trained.stderr
    said = run("generate", out, "abc", "--greedy", "--tokens", "24").stdout
    assert said == "abcdefgh abcdefgh abcdefgh \n"
    result = json.loads(ask("evaluate", out, "--json").stdout)
    assert [row["read"] for row in result["rows"]] == ["carried", "cold windows"]
    assert result["rows"][0]["loss"] < 0.2
    assert len(result["by_position"]) == 32
    assert "perplexity" in ask("evaluate", out, str(text)).stdout
    assert json.loads(ask("generate", out, "abc", "--greedy", "--tokens", "3", "--json").stdout)["text"] == "def"
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["step"] == 60


@pytest.mark.slow
def test_standard_input_is_data(tmp_path):
    run("train", "-", "--budget", "2steps", "--out", str(tmp_path / "r"), "--batch", "2", input="abc " * 100)


@pytest.mark.slow
def test_a_run_goes_on_with_the_text_it_was_begun_on(tmp_path, monkeypatch):
    out, text = str(tmp_path / "r"), tmp_path / "text.txt"
    text.write_text("abc abd " * 100, encoding="utf-8")
    options = ["--budget", "2steps", "--batch", "2", "--steps", "8"]
    ask("train", str(text), "--out", out, *options)
    text.write_text("something else " * 100, encoding="utf-8")
    assert "Next" in run("resume", out).stderr  # the cache has the old text
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert f"not the data that {out} was started on" in ask("resume", out, code=2).stderr
    piped = str(tmp_path / "piped")
    ask("train", "-", "--out", piped, *options, given="abc abd " * 100)
    ask("resume", piped)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nowhere"))
    assert "standard input and is not kept" in ask("evaluate", piped, code=2).stderr


def test_words_between_spaces_go_on_from_a_prompt(tmp_path):
    text, out = tmp_path / "text.txt", str(tmp_path / "run")
    text.write_text("the cat sat on a mat\n" * 200, encoding="utf-8")
    options = ["--tokenizer", "space", "--budget", "60steps", "--steps", "16", "--out", out]
    ask("train", str(text), "-m", "gru", *options)
    assert ask("generate", out, "the cat", "--greedy", "--tokens", "6").stdout == "the cat sat on a mat\nthe\n"


def test_ctrl_c_saves_and_resume_goes_on(tmp_path):
    out = str(tmp_path / "run")
    command = [sys.executable, "-m", "recollect", "train", FEW, "--budget", "100000steps", "--out", out, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            if json.loads(line)["step"] == 5:
                process.send_signal(signal.SIGINT)
                break
        rest, words = process.communicate()
    assert process.returncode == 130
    assert f"recollect resume {out}" in words
    stopped = max(json.loads(line)["step"] for line in rest.splitlines() or ['{"step": 5}'])
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["run"]["training"]["max_steps"] = stopped + 3
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    resumed = [json.loads(line)["step"] for line in ask("resume", out, "--json").stdout.splitlines()]
    assert min(resumed) > stopped - 1
    assert max(resumed) == stopped + 3


@pytest.mark.slow
def test_killed_runs_end_bit_equal(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    options = ["--budget", "30steps", "--batch", "4", "--steps", "16", "--seed", "3"]
    options += ["--set", "evaluate_every=4", "--set", "dropout=0.1"]
    run("train", FEW, "--out", str(whole), *options)
    for at in (7, 19):
        verb = ["train", FEW, "--out", str(killed), *options] if at == 7 else ["resume", str(killed)]
        command = [sys.executable, "-m", "recollect", *verb, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                if json.loads(line)["step"] >= at:
                    os.kill(process.pid, signal.SIGKILL)
                    break
    run("resume", str(killed))
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (whole, killed))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    logs = [(folder / "metrics.jsonl").read_text().splitlines() for folder in (whole, killed)]
    assert [json.loads(line)["step"] for line in logs[0]] == [json.loads(line)["step"] for line in logs[1]]


def test_a_run_that_diverges_names_the_last_good_checkpoint(tmp_path):
    words = (
        r"(nan|not finite).*The last good checkpoint is .*step-00000000\. Try: recollect train recall:count=2000 -m gru"
    )
    with pytest.raises(Diverged, match=words):
        begin(small(rate=1e30), Run(tmp_path / "run"), lambda row: None)


def test_training_works_outside_the_main_thread(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(begin, small(max_steps=2), Run(tmp_path / "run"), lambda row: None).result()


def test_two_processes_on_one_run_are_refused(tmp_path):
    folder = Run(tmp_path / "run")
    with folder.lock(), pytest.raises(FileError, match="another process is training here"):
        begin(small(), Run(tmp_path / "run"), lambda row: None)


def test_a_run_is_not_overwritten(tmp_path):
    begin(small("markov"), Run(tmp_path / "run"), lambda row: None)
    with pytest.raises(FileError, match="a run already exists; resume it with: recollect resume"):
        begin(small("markov"), Run(tmp_path / "run"), lambda row: None)


def test_a_run_of_another_version_is_refused(tmp_path):
    begin(small("markov"), Run(tmp_path / "run"), lambda row: None)
    path = tmp_path / "run" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(FileError, match="a run of version 99, this version reads 3"):
        Run(tmp_path / "run").load_model()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["train", "python-doc"], "did you mean python-docs?"),
        (["train", "recall", "-m", "lsmt"], "did you mean lstm?"),
        (["train", "recall", "--size", "huge"], "expected one of tiny, small, base"),
        (["train", "recall", "--budget", "soon"], "--budget: got 'soon', expected 30s, 5m"),
        (["train", "recall", "--tokenizer", "letters"], "expected one of char, byte, word, space, bpe"),
        (["train", "recall", "--set", "speed=9"], "speed: no such setting of the task language; did you mean seed"),
        (["train", "recall", "--device", "gpu"], "--device: got 'gpu', expected auto, cpu, cuda or cuda:N"),
        (["train", "recall", "--set", "dropout=much"], 'dropout: got "much", expected a number, at least 0'),
        (["train", "recall", "-m", "transformer", "--set", "max_length=64"], "steps: got 128, expected at most 64"),
        (["generate", "nowhere", "a"], "nowhere: not a run"),
        (["evaluate", "nowhere"], "nowhere: not a run"),
        (["resume", "nowhere"], "nowhere: not a run"),
    ],
)
def test_bad_words_are_refused(words, error, tmp_path):
    done = ask(*words, *(["--out", str(tmp_path / "run")] if words[0] == "train" else []), code=2)
    assert error in done.stderr
    assert "Traceback" not in done.stderr


def test_no_verb_has_more_than_twelve_flags():
    verbs = command().commands
    flags = {name: [p.name for p in verb.params if p.param_type_name == "option"] for name, verb in verbs.items()}
    assert {"train", "plan", "resume", "evaluate", "generate"} <= flags.keys()
    assert all("device" in flags[name] for name in ("train", "plan", "resume", "evaluate", "generate"))
    assert max(map(len, flags.values())) <= 12, flags


def test_unknown_symbols_in_a_prompt_are_refused(tmp_path):
    begin(small("markov"), Run(tmp_path / "run"), lambda row: None)
    done = ask("generate", str(tmp_path / "run"), "a1 你", code=2)
    assert "symbol '你' at place 3" in done.stderr


def test_a_repetition_penalty_changes_what_is_generated(tmp_path):
    begin(small(max_steps=12), Run(tmp_path / "run"), lambda row: None)
    words = ["generate", str(tmp_path / "run"), "a1 b2", "--greedy", "--tokens", "20"]
    plain, varied = ask(*words).stdout, ask(*words, "--set", "repetition_penalty=5").stdout
    assert len(set(varied)) > len(set(plain))


def test_nothing_of_the_users_is_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    done = ask("train", FEW, "--budget", "1steps", "--out", ".", code=2)
    assert "holds 'README.md' and is not a run" in done.stderr
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md"]


def test_cold_windows_of_no_symbols_are_refused(tmp_path):
    begin(small("markov"), Run(tmp_path / "run"), lambda row: None)
    assert (
        "--steps: got 0, expected at least 1" in ask("evaluate", str(tmp_path / "run"), "--steps", "0", code=2).stderr
    )


def test_a_finished_run_says_so_and_can_be_trained_further(tmp_path):
    out = str(tmp_path / "run")
    begin(small(), Run(out), lambda row: None)
    done = ask("resume", out)
    assert f"finished: its budget is spent. Train it further with: recollect resume {out} --budget" in done.stderr
    rows = [json.loads(line) for line in ask("resume", out, "--budget", "5steps", "--json").stdout.splitlines()]
    assert max(row["step"] for row in rows) == 17
    assert Run(out).config().training.max_steps == 17
    assert "finished" in ask("resume", out).stderr
    assert "expected seconds, steps or tokens" in ask("resume", out, "--budget", "2epochs", code=2).stderr


def test_a_result_that_is_missing_or_damaged_is_taken_from_a_checkpoint(tmp_path):
    out, result = str(tmp_path / "run"), tmp_path / "run" / "model.safetensors"
    begin(small(), Run(out), lambda row: None)
    words, whole = ["generate", out, "a1 b2", "--greedy", "--tokens", "5"], result.read_bytes()
    wanted = ask(*words).stdout
    result.unlink()
    done = ask(*words)
    assert done.stdout == wanted
    assert f"not finished, these are the weights of step-00000012. Resume with: recollect resume {out}" in done.stderr
    result.write_bytes(whole[: len(whole) // 2])
    done = ask(*words)
    assert done.stdout == wanted
    assert "restored from step-00000012" in done.stderr
    assert ask(*words).stderr == ""
    assert (
        load_file(result).keys() == load_file(tmp_path / "run" / "checkpoints/step-00000012/model.safetensors").keys()
    )


def test_the_shape_is_told_before_training(tmp_path):
    done = ask("train", "recall:count=2000", "--budget", "1steps", "--out", str(tmp_path / "run"))
    shape = "lstm, tiny: width 176, layers 1, vocabulary 41"
    parameters = "249,216 parameters in the body, 14,473 in embeddings and output"
    assert f"recollect: {shape}, {parameters}\n" in done.stderr
    assert "249,216 parameters in the body" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
