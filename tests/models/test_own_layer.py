"""A layer of one's own as a model: trained, resumed, measured and asked by file and by class; bad code is refused."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
import torch

import recollect as rc
from command_line import ask
from recollect.models.own import load_name
from recollect.models.parameters import count_apart

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "min_gru.py"
NAME = f"{FILE}:MinGRU"
DATA = "recall:count=400"
QUICK = ("--budget", "2steps", "--batch", "2", "--steps", "16", "--set", "width=8")


def train(out: Path, *words: str, name: str = NAME, code: int = 0):
    return ask("train", DATA, "-m", name, *QUICK, "--out", str(out), *words, code=code)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a run by file, and what was printed."""
    folder = tmp_path_factory.mktemp("own") / "run"
    return folder, train(folder)


@pytest.fixture
def forgotten(monkeypatch):
    """As in a new process: no code of one's own is known."""
    monkeypatch.setattr("recollect.models.own._layers", {})


@pytest.fixture
def write(tmp_path):
    """Write a file of one's own, and return its name for -m."""

    def write(code: str, name: str = "Mine") -> str:
        path = tmp_path / "mine.py"
        path.write_text(f"import torch\nimport recollect as rc\n{code}", encoding="utf-8")
        return f"{path}:{name}"

    return write


# ---- by file -----------------------------------------------------------------------------------------


def test_the_next_command_generates(trained, forgotten):
    folder, printed = trained
    following = printed.stderr.strip().splitlines()[-1].removeprefix("Next: recollect ")
    words = shlex.split(following)
    assert words[:2] == ["generate", str(folder)]
    assert words[-2:] == ["-m", NAME]
    assert ask(*words, "--tokens", "5").stdout.startswith(words[2])


def test_the_commands_of_the_card_name_the_code(trained):
    folder, _ = trained
    card = (folder / "README.md").read_text(encoding="utf-8")
    commands = [line for line in card.splitlines() if line.startswith("recollect ")]
    assert [line.split()[1] for line in commands] == ["generate", "evaluate", "resume", "train"]
    assert all(f"-m {NAME}" in line for line in commands)


def test_it_is_measured_and_resumed(trained, forgotten):
    folder, _ = trained
    assert "carried" in ask("evaluate", str(folder), "-m", NAME).stdout
    assert f"-m {NAME}" in ask("resume", str(folder), "-m", NAME).stderr


@pytest.mark.parametrize("verb", [("generate", "a"), ("evaluate",), ("resume",)], ids=lambda words: words[0])
def test_code_is_not_loaded_unasked(verb, trained, forgotten):
    folder, _ = trained
    refused = ask(verb[0], str(folder), *verb[1:], code=2).stderr
    assert "never loaded without a request" in refused
    assert f"-m {NAME}" in refused


def test_code_for_a_run_without_any_is_refused(tmp_path):
    rc.train(DATA, model="markov", out=tmp_path / "run")
    refused = ask("generate", str(tmp_path / "run"), "a", "-m", NAME, code=2).stderr
    assert "was trained with markov; leave it out" in refused


def test_a_stopped_run_names_the_code_to_resume(tmp_path, monkeypatch):
    monkeypatch.setattr("recollect.runs.train.run_loop", lambda *args: False)
    monkeypatch.setattr("recollect.runs.train.keep_best", lambda state, run: None)
    monkeypatch.setattr("recollect.runs.train.write_card", lambda *args, **options: None)
    stopped = train(tmp_path / "run", code=130).stderr
    assert f"Resume with: recollect resume {tmp_path / 'run'} -m {NAME}" in stopped


# ---- by class ----------------------------------------------------------------------------------------


@pytest.fixture
def MinGRU():  # noqa: N802
    return load_name(NAME)


def test_python_passes_the_class(MinGRU, tmp_path, forgotten, monkeypatch):
    run = rc.train(DATA, model=MinGRU, budget="2steps", out=tmp_path / "run", width=8, batch_size=2, steps=16)
    assert isinstance(run.model.body[1], MinGRU)
    text = run.generate("a", tokens=5, greedy=True)
    monkeypatch.setattr("recollect.models.own._layers", {})
    again = rc.load(tmp_path / "run", model=MinGRU)
    assert again.generate("a", tokens=5, greedy=True) == text
    assert again.evaluate().value == run.evaluate().value


def test_a_run_by_class_is_opened_by_file(MinGRU, tmp_path, forgotten, monkeypatch):
    rc.train(DATA, model=MinGRU, budget="1steps", out=tmp_path / "run", width=8, batch_size=2, steps=16)
    monkeypatch.setattr("recollect.models.own._layers", {})
    refused = ask("generate", str(tmp_path / "run"), "a", code=2).stderr
    assert "-m path/to/file.py:MinGRU" in refused
    ask("generate", str(tmp_path / "run"), "a", "-m", NAME, "--tokens", "2")


def test_a_function_makes_layers(tmp_path):
    def two_directions_of_depth(width):
        return rc.Stack(rc.GRU(width, width), rc.Linear(width, width))

    run = rc.train(DATA, model=two_directions_of_depth, budget="1steps", out=tmp_path / "run", width=8)
    assert isinstance(run.model.body[1], rc.Stack)


def test_models_without_a_run_take_a_class_too(MinGRU):
    ids = torch.tensor([[1, 2, 3]])
    model = rc.LanguageModel(MinGRU, vocab_size=10, width=8)
    assert isinstance(model.body[1], MinGRU)
    assert model(ids)[0].shape == (1, 3, 10)
    forecaster = rc.Forecaster(MinGRU, channels=2, lookback=8, horizon=3, width=8)
    assert forecaster(torch.zeros(1, 8, 2))[0].shape[:2] == (1, 8)


def test_a_layer_that_is_made_already_is_refused(tmp_path):
    expected = "got a GRU that is made already, expected its class, or a function from a width to a layer: def gru"
    with pytest.raises(ValueError, match=expected):
        rc.LanguageModel(rc.GRU(8, 8), vocab_size=10)
    with pytest.raises(ValueError, match=expected):
        rc.Forecaster(rc.GRU(8, 8))
    with pytest.raises(ValueError, match=expected):
        rc.train(DATA, model=rc.GRU(8, 8), out=tmp_path / "run")


# ---- sizes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "expected"), [("tiny", 250_000), ("small", 2_000_000)])
def test_a_size_is_met(size, expected, tmp_path):
    settings = {"budget": "1steps", "batch_size": 1, "steps": 4}
    run = rc.train(DATA, model=load_name(NAME), size=size, out=tmp_path / "run", **settings)
    assert count_apart(run.model).body == pytest.approx(expected, rel=0.05)


def test_a_layer_without_parameters_is_sized_by_the_rest():
    from recollect.models.own import register_layer
    from recollect.models.sizes import parts_of, sized

    register_layer(lambda width: rc.BasicSelfAttention(width), "notebook:Bare")
    parts = parts_of(sized("notebook:Bare", 65))
    assert (parts.body, parts.vocabulary) == (0, pytest.approx(250_000, rel=0.05))


def test_depth_and_width_are_set(tmp_path):
    train(tmp_path / "run", "--set", "layers=2", "--set", "width=24")
    layers = [layer for layer in rc.load(tmp_path / "run", model=load_name(NAME)).model.body if layer.width == 24]
    assert [type(layer).__name__ for layer in layers] == ["MinGRU", "MinGRU", "Linear"]


def test_a_class_that_is_defined_anew_is_counted_anew():
    from recollect.models.own import register_layer
    from recollect.models.sizes import sized

    register_layer(lambda width: rc.GRU(width, width), "notebook:Mine")
    before = sized("notebook:Mine", 65)
    register_layer(lambda width: rc.LSTM(width, width), "notebook:Mine")
    assert sized("notebook:Mine", 65).width < before.width


# ---- what is refused ---------------------------------------------------------------------------------

OF_TWO = "class Mine(rc.SequenceLayer):\n    def __init__(self, width, heads):\n        super().__init__()\n"
LEAKS = """
class Mine(rc.GRU):
    def __init__(self, width):
        super().__init__(width, width)
    def forward(self, x, memory=None, *, valid=None):
        y, after = super().forward(x, memory, valid=valid)
        return y + x.flip(1), after
"""
FAILS = "class Mine(rc.Linear):\n    def __init__(self, width):\n        super().__init__(width, width)\n" + (
    "    def read(self, x, memory, valid):\n        return x[:, 0][7], memory\n"
)
REFUSED = {
    "no such name": ("class Other(rc.GRU): ...\n", "defines no 'Mine'"),
    "a name that is nearly right": ("class Mime(rc.GRU): ...\n", "did you mean Mime"),
    "no SequenceLayer": ("def Mine(width):\n    return torch.nn.Linear(width, width)\n", "expected a recollect.Seq"),
    "not callable": ("Mine = 3\n", "cannot be made from a width alone"),
    "more than a width": (OF_TWO, "missing 1 required positional argument: 'heads'"),
    "other widths": ("def Mine(width):\n    return rc.GRU(width, 5)\n", "from width 8 to 5, expected 8 to 8"),
    "a file that raises": ("1 / 0\n", "cannot be run (ZeroDivisionError: division by zero)"),
    "a file that is not Python": ("class :\n", "cannot be run (SyntaxError"),
    "fails while it reads": (FAILS, "reading fails with IndexError"),
    "breaks a law": (LEAKS, "smallest example: B="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_code_is_refused_with_the_next_command(case, write, tmp_path):
    code, expected = REFUSED[case]
    name = write(code)
    refused = train(tmp_path / "run", name=name, code=2).stderr
    assert expected in refused
    assert f"Mend it, then: recollect train {DATA} -m {name}" in refused
    assert not (tmp_path / "run" / "config.json").exists()


def test_the_broken_law_is_named(write, tmp_path):
    name = write(LEAKS)
    with pytest.raises(rc.LawBroken, match=r"causality: .*mine.py:Mine: .*smallest example: B=\d") as broken:
        rc.train(DATA, model=name, out=tmp_path / "run")
    assert broken.value.law == "causality"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nowhere.py:Mine", "there is no file 'nowhere.py'"), (f"{ROOT}/Makefile:Mine", "is not a Python file")],
)
def test_a_file_that_is_none_is_refused(name, expected, tmp_path):
    refused = train(tmp_path / "run", name=name, code=2).stderr
    assert expected in refused
    assert "expected path/to/file.py:Name" in refused


def test_a_family_is_no_code(trained):
    refused = ask("generate", str(trained[0]), "a", "-m", "lstm", code=2).stderr
    assert "expected path/to/file.py:Name" in refused


@pytest.mark.parametrize(("data", "task"), [("reversed", "translate"), ("shapes", "caption")])
def test_a_task_that_takes_no_layer_refuses_it(data, task, tmp_path):
    refused = ask("train", data, "--task", task, "-m", NAME, "--out", str(tmp_path / "run"), code=2).stderr
    assert f"the task {task}" in refused
    assert not (tmp_path / "run" / "config.json").exists()


# ---- what a file may hold ----------------------------------------------------------------------------


MEMORY = """
from __future__ import annotations
from dataclasses import dataclass
import torch
import recollect as rc

@dataclass(frozen=True, eq=False, kw_only=True)
class Counted(rc.Memory):
    count: torch.Tensor  # (B,)

class Mine(rc.SequenceLayer):
    growth = "constant"

    def __init__(self, width):
        super().__init__()
        self.width = self.width_out = width

    def initial_memory(self, batch_size, like=None):
        return Counted(count=torch.zeros(batch_size, dtype=torch.long))

    def read(self, x, memory, valid):
        return 2 * x, Counted(count=memory.count + (x.shape[1] if valid is None else valid.sum(1)))
"""


def test_a_file_may_declare_a_memory(tmp_path):
    (tmp_path / "mine.py").write_text(MEMORY, encoding="utf-8")
    train(tmp_path / "run", name=f"{tmp_path / 'mine.py'}:Mine")


def test_the_check_leaves_the_weights_as_they_are_seeded(tmp_path):
    """What the laws draw changes nothing: a run by file equals one by class."""
    one = rc.train(DATA, model=NAME, budget="1steps", out=tmp_path / "one", width=8, steps=16)
    torch.rand(7)
    two = rc.train(DATA, model=load_name(NAME), budget="1steps", out=tmp_path / "two", width=8, steps=16)
    for mine, other in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_a_setting_of_others_is_told_with_ours(trained):
    run = rc.load(trained[0], model=load_name(NAME))
    with pytest.raises(ValueError, match="max_new_tokens: generate has no such setting; did you mean tokens"):
        run.generate("a", max_new_tokens=5)


def test_two_files_of_one_name_are_two_modules(tmp_path):
    made = []
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path = tmp_path / place / "layer_of_two.py"
        path.write_text("import recollect as rc\nclass Mine(rc.GRU):\n    pass\n", encoding="utf-8")
        made.append(load_name(f"{path}:Mine"))
    for kind in made:
        assert getattr(sys.modules[kind.__module__], kind.__name__) is kind
