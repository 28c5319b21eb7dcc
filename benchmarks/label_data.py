"""What benchmarks/labels.py trains: data sets, their parts, models, and the settings that are tried."""

from __future__ import annotations

import gzip
import wave
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from common import SMOKE

Settings = dict[str, Any]

RECURRENT = {"width": 96, "layers": 1, "dropout": 0.4, "rate": 2e-3}
ATTENTION = {"width": 64, "layers": 2, "heads": 4, "dropout": 0.3, "rate": 1e-3, "pooling": "mean"}
LETTERS = {"letters": True, "lowercase": True, "least": 2}
CONTEXT_FREE = ("majority", "bag-of-words", "bag-of-ngrams")  # have no letters, and nothing to try

REGULARISED = {  # what is tried for every network on texts
    "dropout": (0.3, 0.4, 0.5, 0.6),
    "word_dropout": (0.0, 0.1, 0.2, 0.4),
    "average": (0.0, 0.99, 0.998),
    "smoothing": (0.0, 0.1),
    "least": (1, 2),
    "epochs": (0.6, 1.0),  # times those of the data set
}
TRIED: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "recurrent": {
        **REGULARISED,
        "width": (64, 96, 192),
        "rate": (1e-3, 2e-3, 4e-3),
        "pooling": ("max", "mean", "attention"),
    },
    "attention": {
        **REGULARISED,
        "width": (64, 96, 128),
        "layers": (1, 2),
        "rate": (5e-4, 1e-3, 2e-3),
        "pooling": ("mean", "max", "attention"),
    },
    "filters": {**REGULARISED, "width": (96, 192), "rate": (5e-4, 1e-3, 2e-3)},
    "tags": {
        "width": (96, 128, 192, 256),
        "dropout": (0.3, 0.4, 0.5),
        "word_dropout": (0.0, 0.05, 0.1, 0.2),
        "average": (0.0, 0.99, 0.998),
        "rate": (1.5e-3, 3e-3, 5e-3),
        "epochs": (0.8, 1.2, 1.6),
    },
    "frames": {
        "width": (64, 96, 192),
        "dropout": (0.2, 0.3, 0.5),
        "word_dropout": (0.0, 0.1, 0.3),
        "rate": (1e-3, 2e-3, 4e-3),
        "pooling": ("max", "mean", "attention", "last"),
        "stack": (1, 2),
    },
    "attention frames": {
        "width": (64, 96, 128),
        "dropout": (0.1, 0.2, 0.3),
        "word_dropout": (0.0, 0.1, 0.3),
        "rate": (5e-4, 1e-3, 2e-3),
        "pooling": ("max", "mean", "attention"),
        "stack": (1, 2),
    },
    "spelling": {
        "width": (64, 96, 128, 192),
        "dropout": (0.2, 0.3, 0.4),
        "rate": (2e-3, 3e-3, 5e-3),
        "stack": (2, 3, 4),
    },
    "attention tags": {
        "width": (96, 128, 192),
        "layers": (1, 2, 3),
        "dropout": (0.1, 0.2, 0.3),
        "word_dropout": (0.0, 0.05, 0.1, 0.2),
        "average": (0.0, 0.99, 0.998),
        "rate": (5e-4, 1e-3, 2e-3),
        "epochs": (0.8, 1.2, 1.6),
    },
}


@dataclass(frozen=True)
class Model:
    """A row of a table: a family's settings, what is tried instead of them, and whether it is measured on all seeds."""

    settings: Settings = field(default_factory=dict)
    tried: str | None = None
    is_headline: bool = False

    def variants(self, name: str, count: int) -> list[Settings]:
        """Return the settings as they are and `count` − 1 drawn ones, the same for every call."""
        if self.tried is None:
            return [self.settings]
        draw = Random(f"{name} {self.tried}")
        grid = TRIED[self.tried]
        drawn = ({key: draw.choice(values) for key, values in grid.items()} for _ in range(count - 1))
        return [self.settings, *({**self.settings, **one} for one in drawn)]


@dataclass(frozen=True)
class Data:
    """A data set: the task, its parts under RECOLLECT_DATA, the settings of all models, and the models."""

    task: str
    parts: tuple[str, str, str]
    settings: Settings
    epochs: float
    models: dict[str, Model]
    figure: tuple[str, str] | None = None  # row and measure of the scores; None: the one that decides


TEXTS = {
    "majority": Model(),
    "bag-of-words": Model({"rate": 1e-2}),
    "bag-of-ngrams": Model({"rate": 3e-3, "weight_decay": 0.0}),
    "per-word": Model({"width": 96, "pooling": "mean", "dropout": 0.4, "rate": 2e-3}),
    "cnn": Model({"width": 96, "dropout": 0.5, "rate": 1e-3}, "filters"),
    "gru": Model(RECURRENT, "recurrent", is_headline=True),
    "lstm": Model(RECURRENT, "recurrent", is_headline=True),
    "bilstm": Model(RECURRENT, "recurrent", is_headline=True),
    "transformer": Model(ATTENTION, "attention", is_headline=True),
    "bert": Model(ATTENTION, "attention", is_headline=True),
}
WORDS = {"width": 128, "layers": 1, "dropout": 0.3, "rate": 3e-3}
TAGS = {
    "majority": Model(),
    "per-word": Model({"width": 128, "dropout": 0.3, "rate": 3e-3}),
    "gru": Model(WORDS, "tags"),
    "bilstm": Model(WORDS, "tags", is_headline=True),
    "bert": Model({"width": 96, "layers": 2, "heads": 4, "dropout": 0.3, "rate": 1e-3}, "attention tags"),
}
SPANS = {**TAGS, "bilstm": Model({**WORDS, "crf": True}, "tags", is_headline=True)}
AVERAGED = {**WORDS, "crf": True, "average": 0.998, "word_dropout": 0.1, "epochs": 1.5}
SLOTS = {**SPANS, "bilstm": Model(AVERAGED, "tags", is_headline=True)}


FILMS = {  # SST-2: the best on the validation part of some that were tried by hand
    **TEXTS,
    "gru": Model({**RECURRENT, "width": 300, "dropout": 0.6, "word_dropout": 0.1}, "recurrent", is_headline=True),
    "bert": Model(
        {**ATTENTION, "width": 128, "pooling": "max", "average": 0.998, "word_dropout": 0.2},
        "attention",
        is_headline=True,
    ),
}
CHINESE = {  # texts of a hundred characters
    **TEXTS,
    "bag-of-ngrams": Model({"rate": 1e-3, "weight_decay": 0.0, "ngrams": 2, "buckets": 2**20}, is_headline=True),
    "cnn": Model({"width": 192, "dropout": 0.5, "rate": 3e-3, "average": 0.99}, "filters"),
    "bilstm": Model({**RECURRENT, "width": 128, "average": 0.998, "epochs": 1.5}, "recurrent", is_headline=True),
}


def only(models: dict[str, Model], *names: str) -> dict[str, Model]:
    return {name: models[name] for name in names}


FRAMES = {"width": 96, "layers": 1, "dropout": 0.3, "word_dropout": 0.1, "rate": 2e-3, "average": 0.99}
DIGITS = {
    "majority": Model(),
    "per-word": Model({**FRAMES, "pooling": "mean"}),
    "cnn": Model({"width": 192, "dropout": 0.4, "word_dropout": 0.1, "rate": 1e-3, "average": 0.99}),
    "gru": Model(FRAMES, "frames", is_headline=True),
    "lstm": Model(FRAMES, "frames", is_headline=True),
    "bigru": Model(FRAMES, "frames", is_headline=True),
    "bert": Model({**FRAMES, "width": 64, "layers": 2, "rate": 1e-3}, "attention frames", is_headline=True),
}
SPELLING = {"width": 96, "dropout": 0.3, "rate": 3e-3, "average": 0.99}
STRINGS = {
    "sutskever": Model(SPELLING),
    "bahdanau": Model(SPELLING, "spelling", is_headline=True),
    "luong": Model({**SPELLING, "input_feeding": True}, "spelling", is_headline=True),
    "transformer": Model({**SPELLING, "layers": 2, "norm": "pre", "rate": 1e-3, "warmup": 0.1}),
}
UD = "ud_english_ewt/en_ewt-ud-{}.conllu.gz"
SNIPS = ("snips/train/{}.gz", "snips/valid/{}", "snips/test/{}")
INTENTS = ("snips/train/label", "snips/valid/label", "snips/test/label")


def side_by_side(one: Sequence[str], other: Sequence[str]) -> tuple[str, str, str]:
    first, second, third = (f"{words},{labels}" for words, labels in zip(one, other, strict=True))
    return first, second, third


SNIPS_WORDS = [place.format("seq.in") for place in SNIPS]
SNIPS_TAGS = [place.format("seq.out") for place in SNIPS]
DATA = {
    "sst2": Data(
        "classify",
        ("sst/stsa.binary.train.gz", "sst/stsa.binary.dev", "sst/stsa.binary.test"),
        {"tokenizer": "space"},
        epochs=5,
        models=FILMS,
    ),
    "ud": Data("tag", (UD.format("train"), UD.format("dev"), UD.format("test")), LETTERS, epochs=5, models=TAGS),
    "snips-intents": Data(
        "classify",
        side_by_side(SNIPS_WORDS, INTENTS),
        {"tokenizer": "space"},
        epochs=4,
        models=only(TEXTS, "majority", "bag-of-words", "bag-of-ngrams", "cnn", "bilstm", "bert"),
    ),
    "snips-slots": Data(
        "tag", side_by_side(SNIPS_WORDS, SNIPS_TAGS), {**LETTERS, "convert": "bioes"}, epochs=6, models=SLOTS
    ),
    "chnsenticorp": Data(
        "classify",
        ("chnsenticorp/train.tsv.gz", "", "chnsenticorp/dev.tsv.gz"),
        {"tokenizer": "char"},
        epochs=4,
        models=only(CHINESE, "majority", "bag-of-words", "bag-of-ngrams", "cnn", "gru", "bilstm", "bert"),
    ),
    "wnut17": Data(
        "tag",
        ("wnut17/wnut17train.conll.gz", "wnut17/emerging.dev.conll", "wnut17/emerging.test.annotated"),
        {**LETTERS, "convert": "bioes"},
        epochs=40,
        models=SPANS,
    ),
    "spoken-digits": Data("classify", ("", "", ""), {"batch_size": 16}, epochs=40, models=DIGITS),
    "digit-strings": Data("translate", ("", "", ""), {}, epochs=10, models=STRINGS, figure=("beam 5", "symbols")),
}


def places(name: str, home: Path, folder: Path) -> dict[str, str]:
    """Return the places of a data set's parts; parts that must be made first are written into a folder."""
    made = {"chnsenticorp": chnsenticorp, "spoken-digits": spoken_digits, "digit-strings": digit_strings}
    if name in made:
        return made[name](home, folder)
    parts = (",".join(str(home / one) for one in part.split(",")) for part in DATA[name].parts)
    return dict(zip(("train", "valid", "test"), parts, strict=True))


def chnsenticorp(home: Path, folder: Path) -> dict[str, str]:
    """Write the development texts that do not occur in training: they are the test, as the test part has no labels."""
    train, _, test = DATA["chnsenticorp"].parts
    with gzip.open(home / train, "rt", encoding="utf-8") as file:
        seen = {line.rpartition("\t")[0] for line in file}
    with gzip.open(home / test, "rt", encoding="utf-8") as file:
        kept = [line for line in file if line.rpartition("\t")[0] not in seen]
    own = folder / "chnsenticorp-dev.tsv"
    own.write_text("".join(kept), encoding="utf-8")
    return {"train": str(home / train), "test": str(own)}


# ---- spoken digits -----------------------------------------------------------------------------------

VALIDATED = ("12", "13")  # takes of the training part that are validated on
STRINGS_OF = {"train": 30, "valid": 5, "test": 5} if SMOKE else {"train": 3000, "valid": 300, "test": 500}
Recorded = dict[str, dict[str, list[bytes]]]  # by speaker and digit


def spoken_digits(home: Path, folder: Path) -> dict[str, str]:
    """Unpack the recordings into a folder for each part, and in it one for each digit."""
    parts = {}
    for part, name, data in _digits(home):
        digit = name.partition("_")[0]
        place = folder / "spoken" / part / digit / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        parts[part] = str(folder / "spoken" / part)
    return parts


def digit_strings(home: Path, folder: Path) -> dict[str, str]:
    """Join three to five recordings of one speaker with short silences, each part from its own recordings."""
    spoken: dict[str, Recorded] = {part: {} for part in STRINGS_OF}
    for part, name, data in _digits(home):
        digit, speaker, _ = name.split("_")
        with wave.open(BytesIO(data)) as file:
            spoken[part].setdefault(speaker, {}).setdefault(digit, []).append(file.readframes(file.getnframes()))
    return {part: _strings(part, by_speaker, folder) for part, by_speaker in spoken.items()}


def _strings(part: str, spoken: Recorded, folder: Path) -> str:
    place = folder / "strings" / part
    place.mkdir(parents=True)
    draw, rows = Random(part), []
    for number in range(STRINGS_OF[part]):
        takes = spoken[draw.choice(sorted(spoken))]
        digits = [draw.choice("0123456789") for _ in range(draw.randint(3, 5))]
        silences = [bytes(2 * draw.randint(400, 1600)) for _ in range(len(digits) + 1)]  # 50 to 200 ms
        samples = silences[0] + b"".join(
            draw.choice(takes[digit]) + silence for digit, silence in zip(digits, silences[1:], strict=True)
        )
        with wave.open(str(place / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(samples)
        rows.append(f"{number}.wav\t{''.join(digits)}\n")
    (place / "transcripts.tsv").write_text("".join(rows), encoding="utf-8")
    return str(place)


def _digits(home: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the part, the name DIGIT_SPEAKER_TAKE.wav, and the bytes of every recording."""
    with zipfile.ZipFile(home / "spoken_digits" / "fsdd.zip") as archive:
        for path in sorted(name for name in archive.namelist() if name.endswith(".wav")):
            part, _, name = path.rpartition("/")
            is_validated = part.endswith("train") and Path(name).stem.rpartition("_")[2] in VALIDATED
            yield "valid" if is_validated else part.rpartition("/")[2], name, archive.read(path)
