"""Where recordings come from: folders of .wav by label, folders with transcripts, and built-ins.

Errors name the file, and the row of the table that it stands in.
"""

from __future__ import annotations

import wave
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recollect.data.error import DataError, did_you_mean
from recollect.data.synthetic.tones import RATE, TONE_TASKS, TONES, generated_tones
from recollect.data.text.encoding import find_encoding, numbered_lines

TRANSCRIPTS = "transcripts.tsv"
FORMS = (
    "a folder with a folder of .wav files for each label, a folder of .wav files with transcripts.tsv (a file and its "
    "transcript in each row), or a built-in"
)
SCALES = {1: 128.0, 2: 32768.0, 4: 2147483648.0}  # of full scale, by bytes of a sample


class AudioRecording(NamedTuple):
    """Samples between −1 and 1, the label or transcript, where they were read, and samples a second."""

    samples: NDArray[np.float32]
    label: str
    where: str
    rate: int


def is_audio(data: str) -> bool:
    """Return whether DATA are recordings: a built-in, a .wav, or a folder with some."""
    if "\n" in data:
        return False  # several names
    path = Path(data)
    if data.partition(":")[0] in TONES or path.suffix.lower() == ".wav":
        return True
    return path.is_dir() and next(_wavs(path), None) is not None


def task_of_audio(data: str) -> str:
    """Return the task that recordings are for: `translate` where they have transcripts, else `classify`."""
    name = data.partition(":")[0]
    if name in TONE_TASKS:
        return TONE_TASKS[name]
    return "translate" if (Path(data) / TRANSCRIPTS).is_file() else "classify"


def read_wav(path: str | Path, where: str | None = None) -> tuple[NDArray[np.float32], int]:
    """Return the samples (N,) of a mono .wav with integer samples, between −1 and 1, and their rate.

    >>> import tempfile, wave
    >>> path = tempfile.mkdtemp() + "/a.wav"
    >>> with wave.open(path, "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     file.writeframes(bytes([0, 64, 0, 192]))  # 16 bits, least significant byte first
    >>> samples, rate = rc.read_wav(path)
    >>> samples.tolist(), rate
    ([0.5, -0.5], 8000)
    """
    where = where or str(path)
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise DataError(f"{where}: no such file{did_you_mean(Path(path))}; give a .wav") from None
    except (wave.Error, EOFError, OSError) as error:
        why = str(error) or ("it ends within its header" if Path(path).stat().st_size else "it is empty")
        raise DataError(
            f"{where}: not a .wav that can be read ({why}); convert it: ffmpeg -i IN -ac 1 -c:a pcm_s16le OUT.wav"
        ) from error
    if channels != 1:
        raise DataError(f"{where}: {channels} channels, expected 1; convert it: ffmpeg -i IN.wav -ac 1 OUT.wav")
    if width not in SCALES:
        raise DataError(f"{where}: samples of {8 * width} bits, expected 8, 16 or 32; convert it to 16 bits")
    data = data[: len(data) // width * width]  # a file that was cut off may end within a sample
    if not data:
        raise DataError(f"{where}: no samples in it; remove it, or record it again")
    kind = np.uint8 if width == 1 else np.dtype(f"<i{width}")
    samples = np.frombuffer(data, kind).astype(np.float64) - (SCALES[1] if width == 1 else 0)
    return (samples / SCALES[width]).astype(np.float32), rate


def read_recordings(data: str) -> Iterator[AudioRecording]:
    """Yield the recordings of DATA with their labels or transcripts; all have the rate of the first."""
    if data.partition(":")[0] in TONES:
        for number, (samples, label) in enumerate(generated_tones(data), 1):
            yield AudioRecording(samples, label, f"{data}, {number}", RATE)
        return
    path = Path(data)
    if not path.is_dir():
        near = did_you_mean(path, TONES)
        raise DataError(f"{data}: no such folder{near}; recordings are {FORMS}: {', '.join(TONES)}")
    places = _transcribed(path) if (path / TRANSCRIPTS).is_file() else _by_label(path)
    first = None
    for file, label, where in places:
        samples, rate = read_wav(file, where)
        first = first or (rate, where)
        check_rate(rate, first[0], where, f"as {first[1]} has")
        yield AudioRecording(samples, label, where, rate)


def check_rate(rate: int, expected: int, where: str, why: str) -> None:
    """Raise a DataError for another number of samples a second."""
    if rate != expected:
        raise DataError(
            f"{where}: {rate} samples a second, expected {expected}, {why}; "
            f"convert it: ffmpeg -i IN.wav -ar {expected} OUT.wav"
        )


def find_recordings(inputs: str | Sequence[str]) -> list[AudioRecording]:
    """Return what is named to be predicted: a .wav, a folder of them, a built-in, one of its recordings, or a list."""
    if not isinstance(inputs, str):
        return [one for each in inputs for one in find_recordings(each)]
    data, _, number = inputs.rpartition(", ")
    if data.partition(":")[0] in TONES and number.isdigit():
        found = islice(read_recordings(data), max(int(number) - 1, 0), int(number))
        return [one._replace(where=inputs) for one in found]
    if inputs.partition(":")[0] in TONES:
        return list(read_recordings(inputs))
    path = Path(inputs)
    files = sorted(_wavs(path)) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{inputs}: no .wav in it; give a .wav or a folder with some")
    return [AudioRecording(samples, "", str(file), rate) for file in files for samples, rate in [read_wav(file)]]


def _wavs(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() == ".wav" and not path.name.startswith("."))


def _by_label(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield each .wav, the name of its folder, and where it is."""
    labels = sorted(inside for inside in folder.iterdir() if inside.is_dir() and not inside.name.startswith("."))
    if not labels:
        raise DataError(f"{folder}: a folder without folders; expected {FORMS}")
    for label in labels:
        for file in sorted(path for path in label.rglob("*") if path.is_file() and not path.name.startswith(".")):
            yield file, label.name, str(file)


def _transcribed(folder: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield the file and the transcript of each row, and where it is."""
    table = folder / TRANSCRIPTS
    for number, line in numbered_lines(table, find_encoding(table)):
        if not line.strip():
            continue
        name, tab, text = line.rstrip("\n").partition("\t")
        where = f"{table}, line {number}, {name}"
        if not (tab and text.strip()):
            raise DataError(f"{where}: no transcript; a row is a file, a tab and its transcript")
        yield folder / name, text.strip(), where
