"""From recordings to frames: what stands in the place of a tokenizer where inputs are vectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recollect.core.serialize import write_file
from recollect.data.audio.log_mel import HOP, log_mel
from recollect.data.audio.wav_files import AudioRecording, check_rate, find_recordings
from recollect.data.error import DataError

Frames = NDArray[np.float32]


@dataclass(frozen=True)
class FrameCoder:
    """Log-mel frames, `stack` of them in a vector; each band has mean 0 and deviation 1 over the training part.

    >>> import numpy as np
    >>> coder = rc.FrameCoder(rate=8000, bands=20, stack=2)
    >>> coder.frames(np.zeros(8000, dtype=np.float32)).shape  # 61 frames in pairs, of which the last is filled up
    (31, 40)
    """

    rate: int
    bands: int = 40
    stack: int = 1
    mean: tuple[float, ...] = ()  # of each band; none: not normalised
    deviation: tuple[float, ...] = ()

    kind: ClassVar[str] = "frames"
    vocab_size: ClassVar[int] = 1  # there are no ids
    model_size: ClassVar[int] = 1
    letter_count: ClassVar[int] = 0
    unknown: ClassVar[None] = None

    @classmethod
    def learn(cls, recordings: Sequence[AudioRecording], bands: int, stack: int) -> FrameCoder:
        """Return a coder with the rate, the means and the deviations of the training part."""
        plain = cls(recordings[0].rate, bands)
        every = np.concatenate([plain.frames(one.samples) for one in recordings]).astype(np.float64)
        deviation = np.maximum(every.std(0), 1e-3)
        return cls(plain.rate, bands, stack, tuple(every.mean(0).tolist()), tuple(deviation.tolist()))

    @property
    def width(self) -> int:
        """Width of the vectors that a model reads."""
        return self.bands * self.stack

    def frames(self, samples: NDArray[np.float32]) -> Frames:
        """Return the vectors (T, width) of samples; the last is filled up with zeros, the mean."""
        found = log_mel(samples, self.rate, self.bands)
        if self.mean:
            found = ((found - np.array(self.mean)) / np.array(self.deviation)).astype(np.float32)
        found = np.pad(found, ((0, -len(found) % self.stack), (0, 0)))
        return np.ascontiguousarray(found.reshape(-1, self.width))

    def of(self, recording: AudioRecording) -> Frames:
        """Return the vectors of a recording; raise a DataError where it has another rate."""
        check_rate(recording.rate, self.rate, recording.where, "as the recordings that the run was trained on")
        return self.frames(recording.samples)

    def encode(self, name: str) -> Frames:
        """Return the vectors of a .wav file, or of one recording of a built-in, as in `tones, 3`."""
        found = find_recordings(name)
        if len(found) != 1:
            raise DataError(f"{name}: got {len(found)} recordings, expected one; name a .wav")
        return self.of(found[0])

    def symbols(self, name: str) -> list[str]:
        """Return the moment of each vector, in seconds."""
        return [f"{i * self.stack * HOP:.2f}" for i in range(len(self.encode(name)))]

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        write_file(Path(path), json.dumps({"kind": self.kind, **asdict(self)}).encode())

    @classmethod
    def load(cls, path: str | Path) -> FrameCoder:
        """Read it back."""
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
        mean, deviation = tuple(saved["mean"]), tuple(saved["deviation"])
        return cls(saved["rate"], saved["bands"], saved["stack"], mean, deviation)

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether a file of a run's assets is a coder of frames."""
        return json.loads(path.read_text(encoding="utf-8")).get("kind") == FrameCoder.kind

    def about(self) -> dict[str, str]:
        """Return what a model reads, by language, for its card."""
        each = self.stack * HOP * 1000
        return {
            "en": f"{self.bands} log-mel bands, {self.stack} frames in a vector, a vector every {each:g} ms",
            "zh": f"{self.bands} 个对数梅尔频带，每个向量含 {self.stack} 帧，每 {each:g} 毫秒一个向量",
        }


def flattened(rows: Iterable[Frames]) -> tuple[Frames, NDArray[np.int64]]:
    """Return frames of several recordings in one array, and the index after the last of each."""
    every = list(rows)
    return np.concatenate(every), np.cumsum([len(one) for one in every])
