"""Recordings: .wav files, log-mel frames, folders by label and with transcripts, and the errors of each."""

from __future__ import annotations

import wave

import numpy as np
import pytest
from transformers.audio_utils import mel_filter_bank, spectrogram

from recollect.data.audio.frame_coder import FrameCoder
from recollect.data.audio.log_mel import FLOOR, log_mel, mel_filters
from recollect.data.audio.recordings import load_spoken_labels, load_spoken_pairs
from recollect.data.audio.wav_files import find_recordings, read_recordings, read_wav
from recollect.data.error import DataError
from recollect.data.pairs.pair_batches import PairBatches
from recollect.data.synthetic.tones import FREQUENCIES, RATE, generated_tones
from recollect.tasks.register import guess_task


def save(path, samples, *, channels=1, width=2, rate=RATE):
    path.parent.mkdir(parents=True, exist_ok=True)
    scaled = np.asarray(samples) * (127 if width == 1 else 2 ** (8 * width - 1) - 1)
    kind = {1: np.uint8, 2: "<i2", 4: "<i4"}[width]
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes((scaled + 128 * (width == 1)).astype(kind).tobytes())
    return str(path)


def by_label(folder, count=40):
    for number, (samples, label) in enumerate(generated_tones(f"tones:count={count}")):
        save(folder / label / f"{number}.wav", samples)
    return str(folder)


# ---- frames ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "bands"), [(8000, 40), (16000, 23)])
def test_frames_equal_those_of_transformers(rate, bands):
    samples = np.random.default_rng(0).normal(size=rate).astype(np.float32) / 10
    window = round(0.032 * rate)
    filters = mel_filter_bank(window // 2 + 1, bands, 0, rate / 2, rate, norm=None, mel_scale="htk")
    assert np.abs(mel_filters(bands, window, rate).numpy() - filters.T).max() < 1e-12
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = spectrogram(
        samples.astype(np.float64), hann, window, window // 2, power=2.0, center=False, mel_filters=filters, dtype=float
    )
    expected = np.log(np.maximum(power, 1e-10) + FLOOR).T
    assert np.abs(log_mel(samples, rate, bands) - expected).max() < 2e-5  # transformers transforms in single precision


def test_a_tone_lies_in_the_band_of_its_frequency():
    seconds = np.arange(RATE) / RATE
    for frequency in (697, 1477, 3000):
        frames = log_mel(np.sin(2 * np.pi * frequency * seconds).astype(np.float32), RATE)
        corners = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 42) / 2595) - 1)
        band = int(frames.mean(0).argmax())
        assert corners[band] < frequency < corners[band + 2]


def test_a_short_recording_has_one_frame():
    assert log_mel(np.ones(5, dtype=np.float32), RATE).shape == (1, 40)


def test_a_coder_normalises_stacks_and_is_saved(tmp_path):
    rows = list(read_recordings("tones:count=30"))
    plain, coder = FrameCoder(RATE), FrameCoder.learn(rows, 40, 1)
    every = np.concatenate([coder.of(one) for one in rows])
    assert np.abs(every.mean(0)).max() < 1e-5
    assert np.abs(every.std(0) - 1).max() < 1e-5
    stacked = FrameCoder(RATE, stack=3)
    frames = plain.of(rows[0])
    found = stacked.of(rows[0])
    assert found.shape == (-(-len(frames) // 3), 120)
    assert (found.reshape(-1, 40)[: len(frames)] == frames).all()
    assert (found.reshape(-1, 40)[len(frames) :] == 0).all()
    coder.save(tmp_path / "tokenizer.json")
    assert FrameCoder.load(tmp_path / "tokenizer.json") == coder
    assert coder.symbols("tones, 1")[:3] == ["0.00", "0.02", "0.03"]


# ---- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4])
def test_samples_of_every_width(width, tmp_path):
    expected = np.linspace(-0.9, 0.9, 50)
    found, rate = read_wav(save(tmp_path / "a.wav", expected, width=width))
    assert rate == RATE
    assert np.abs(found - expected).max() < 2 ** (3 - 8 * width) + 1e-6


def test_labels_are_folders_and_transcripts_a_table(tmp_path):
    data = by_label(tmp_path / "digits")
    assert guess_task(data) == "classify"
    found = load_spoken_labels(data, None, None, 40, 1)
    assert [len(part) for part in (found.train, found.valid, found.test)] == [32, 4, 4]
    assert set(found.labels.names) <= set("0123456789")
    lines = []
    for number, (samples, digits) in enumerate(generated_tones("tone-strings:count=20")):
        save(tmp_path / "strings" / f"{number}.wav", samples)
        lines.append(f"{number}.wav\t{digits}\n")
    (tmp_path / "strings" / "transcripts.tsv").write_text("".join(lines))
    assert guess_task(str(tmp_path / "strings")) == "translate"
    pairs = load_spoken_pairs(str(tmp_path / "strings"), None, None, 40, 2, None)
    assert len(pairs.train) == 16
    batch = next(iter(PairBatches(pairs.train, begin=pairs.begin, end=pairs.end, batch_size=4)))
    assert batch.source.shape[0::2] == (4, 80)
    assert not batch.source.isnan().any()
    number = 3
    again = pairs.source_tokenizer.encode(
        pairs.train.source_line(number).rpartition(", ")[0].partition("strings")[0]
        + "strings/"
        + pairs.train.source_line(number).rpartition(", ")[2]
    )
    assert (again == pairs.train.source(number)).all()


def test_one_recording_is_named(tmp_path):
    path = save(tmp_path / "a.wav", np.ones(100))
    assert [one.where for one in find_recordings([path, "tones, 2"])] == [path, "tones, 2"]
    assert (find_recordings("tones, 2")[0].samples == list(read_recordings("tones:count=2"))[1].samples).all()
    with pytest.raises(DataError, match=r"got 2 recordings, expected one"):
        FrameCoder(RATE).encode("tones:count=2")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"channels": 2}, r"b\.wav: 2 channels, expected 1; convert it: ffmpeg"),
        ({"rate": 16000}, r"b\.wav: 16000 samples a second, expected 8000, as .*\.wav has; convert it: ffmpeg"),
        ({"samples": []}, r"b\.wav: no samples in it"),
        ({"text": b"RIFF"}, r"b\.wav: not a \.wav that can be read \(it ends within its header\); convert it: ffmpeg"),
        ({"text": b""}, r"b\.wav: not a \.wav that can be read \(it is empty\)"),
        ({"text": b"ID3 this is no wav at all, but it is long enough to be one"}, r"b\.wav: not a \.wav that can be"),
    ],
)
def test_bad_recordings_are_named(change, error, tmp_path):
    data = by_label(tmp_path / "digits", 12)
    bad = tmp_path / "digits" / "9" / "b.wav"
    if "text" in change:
        bad.parent.mkdir(exist_ok=True)
        bad.write_bytes(change["text"])
    else:
        save(bad, change.pop("samples", np.ones(200)), **change)
    with pytest.raises(DataError, match=error):
        list(read_recordings(data))


def test_bad_tables_are_named_with_their_row(tmp_path):
    path = save(tmp_path / "a.wav", np.ones(500), channels=2)
    table = tmp_path / "transcripts.tsv"
    table.write_text("a.wav\t12\n")
    with pytest.raises(DataError, match=r"transcripts\.tsv, line 1, a\.wav: 2 channels"):
        list(read_recordings(str(tmp_path)))
    save(tmp_path / "a.wav", np.ones(500))
    table.write_text("a.wav\t12\n\nb.wav\t3\n")
    with pytest.raises(DataError, match=r"transcripts\.tsv, line 3, b\.wav: no such file; did you mean a\.wav"):
        list(read_recordings(str(tmp_path)))
    table.write_text("a.wav\n")
    with pytest.raises(DataError, match=r"transcripts\.tsv, line 1, a\.wav: no transcript"):
        list(read_recordings(str(tmp_path)))
    with pytest.raises(DataError, match="no such folder"):
        list(read_recordings(path))


# ---- the built-in ------------------------------------------------------------------------------------


def test_tones_are_the_same_again_and_hold_their_frequencies():
    one, other = (list(generated_tones("tones:count=20,noise=0")) for _ in range(2))
    assert all((a[0] == b[0]).all() and a[1] == b[1] for a, b in zip(one, other, strict=True))
    for samples, digit in one:
        power = np.abs(np.fft.rfft(samples, 1 << 15)) ** 2
        frequencies = np.fft.rfftfreq(1 << 15, 1 / RATE)
        for low, high, wanted in ((650, 1000, FREQUENCIES[digit][0]), (1150, 1550, FREQUENCIES[digit][1])):
            inside = (frequencies > low) & (frequencies < high)
            assert abs(frequencies[inside][power[inside].argmax()] / wanted - 1) < 0.025
    lengths = {len(digits) for _, digits in generated_tones("tone-strings:count=50")}
    assert lengths == {3, 4, 5}


@pytest.mark.parametrize("data", ["tones:count=0", "tones:noise=-1", "tone-strings:least=4,most=3", "tones:hum=1"])
def test_bad_arguments_of_a_built_in(data):
    with pytest.raises(DataError):
        list(read_recordings(data))
