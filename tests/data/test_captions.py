"""Captions and their pictures: where they come from, how they are divided without a leak, and how they are batched."""

from __future__ import annotations

import gzip
import hashlib
from itertools import islice

import numpy as np
import pytest

from recollect.data.error import DataError
from recollect.data.images.caption_batches import CaptionBatches
from recollect.data.images.caption_files import open_captions
from recollect.data.images.captions import Captions, load_captions, read_caption_part, reopen_captions


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def pixels(count: int, side: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def folder_of(tmp_path, images: np.ndarray, captions: list[tuple[int, str]], name: str = "folder"):
    """Write a folder of .npy pictures with captions.tsv."""
    folder = tmp_path / name
    folder.mkdir()
    for number, image in enumerate(images):
        np.save(folder / f"{number}.npy", image)
    lines = [f"{number}.npy\t{caption}\n" for number, caption in captions]
    (folder / "captions.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def seen(data: Captions) -> dict[str, set[str]]:
    """Give what is on each part's pictures, as hashes."""
    parts = {"train": data.train, "valid": data.valid, "test": data.test}
    return {name: {hashlib.md5(p.tobytes()).hexdigest() for p in part.pictures} for name, part in parts.items()}


def test_a_folder_comes_in_whole(tmp_path):
    images = pixels(40)
    rows = [(n, f"picture {n}") for n in range(40)] + [(n, f"again {n}") for n in range(40)]
    data = load_captions(str(folder_of(tmp_path, images, rows)))
    parts = (data.train, data.valid, data.test)
    assert [len(part) for part in parts] == [72, 4, 4]
    assert data.size == (4, 4, 3)
    for part in parts:
        for row in range(len(part)):
            number = int(part.pairs.target_line(row).split()[1])
            assert part.pairs.source_line(row).endswith(f"/{number}.npy")
            assert np.array_equal(part.pictures_of([row])[0], images[number])
            assert data.tokenizer.decode(data.tokenizer.encode("again")) == "again"
    again = reopen_captions(data.name)
    assert again is not None
    assert again.valid.pairs.target_lines == data.valid.pairs.target_lines


def test_no_picture_is_in_two_parts_under_whatever_name(tmp_path):
    images = pixels(60).repeat(2, axis=0)  # each twice, in two files
    data = load_captions(str(folder_of(tmp_path, images, [(n, f"picture {n}") for n in range(120)])))
    found = seen(data)
    assert sum(map(len, found.values())) == 60
    assert not found["train"] & found["valid"] | found["train"] & found["test"] | found["valid"] & found["test"]
    assert sum(len(part) for part in (data.train, data.valid, data.test)) == 120


def test_the_order_of_lines_decides_nothing_on_the_parts(tmp_path):
    images, rows = pixels(40), [(n, f"picture {n}") for n in range(40)]
    one = load_captions(str(folder_of(tmp_path, images, rows)))
    other = load_captions(str(folder_of(tmp_path, images, rows[::-1], "turned")))
    assert seen(one) == seen(other)


def test_groups_stay_together_and_known_pictures_are_left_out(tmp_path, capsys):
    images = pixels(60)
    images[1:20:2] = images[:20:2]  # a third of what a group holds is in another one too
    np.savez(tmp_path / "images.npz", images=images)
    lines = ["base\trow\twords", *(f"group {n % 20}\t{n}\tcaption {n}" for n in range(60))]
    with gzip.open(tmp_path / "captions.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines))
    data = load_captions(f"{tmp_path}/images.npz,{tmp_path}/captions.tsv.gz", field="row,words,base")
    groups = [
        {int(line.split()[1]) % 20 for line in part.pairs.target_lines} for part in (data.train, data.valid, data.test)
    ]
    assert len(groups[0]) == 18
    assert not groups[0] & groups[1] | groups[0] & groups[2] | groups[1] & groups[2]
    found = seen(data)
    assert not found["train"] & found["valid"] | found["train"] & found["test"] | found["valid"] & found["test"]
    assert "left out, the picture came before" in capsys.readouterr().err


def test_given_parts_stay_as_they_are(tmp_path, capsys):
    images = pixels(10)
    train = folder_of(tmp_path, images, [(n, f"picture {n}") for n in range(10)])
    test = folder_of(tmp_path, images[:2], [(0, "picture 0"), (1, "new words")], "test")
    data = load_captions(str(train), test=str(test))
    assert [len(part) for part in (data.train, data.valid, data.test)] == [9, 1, 2]
    assert "also in what came before, kept as given" in capsys.readouterr().err
    part = read_caption_part(str(test), data.tokenizer, (4, 4, 3))
    assert part.pairs.target_lines == ["picture 0", "new words"]
    other = folder_of(tmp_path, pixels(3, side=5), [(n, "words") for n in range(3)], "large")
    with pytest.raises(DataError, match=r"large: got pictures of 5×5×3, expected 4×4×3"):
        load_captions(str(train), test=str(other))
    with pytest.raises(DataError, match=r"large: got pictures of 5×5×3, expected 4×4×3, as what was trained on"):
        read_caption_part(str(other), data.tokenizer, (4, 4, 3))


def test_shapes_need_no_files():
    data, chinese = load_captions("shapes:count=60"), load_captions("shapes:count=60,chinese=1")
    assert data.size == (32, 32, 3)
    assert all(line.startswith("a ") for line in data.train.pairs.target_lines)
    assert "色" in chinese.train.pairs.target_line(0)
    assert seen(data) == seen(chinese)


@pytest.mark.parametrize(
    ("table", "field", "error"),
    [
        ("0.npy\ta\n7.npy\tb\n", None, r"captions.tsv, line 2: no picture .*7.npy"),
        ("0.npy a\n", None, r"captions.tsv, line 1: got 1 columns, expected 2"),
        ("0.npy\ta\n1.npy\t \n", None, r"captions.tsv, line 2: the caption is empty"),
        ("\n\n", None, r"captions.tsv: no caption in it"),
        ("0.npy\ta\n1.npy\tb\n", None, r"got 2 different pictures"),
        (
            "file\tcaption\n0.npy\ta\n",
            "file,words",
            r"captions.tsv: no column 'words'; its first line has: file, caption",
        ),
        ("file\tcaption\n0.npy\ta\n", "file", r"field: got 'file', expected two names"),
        ("notes.txt\ta\n", None, r"notes.txt: not a picture that is read here"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(table, field, error, tmp_path):
    folder = folder_of(tmp_path, pixels(3), [])
    (folder / "notes.txt").write_text("words", encoding="utf-8")
    (folder / "captions.tsv").write_text(table, encoding="utf-8")
    with pytest.raises(DataError, match=error):
        load_captions(str(folder), field=field)


def test_data_that_is_none_is_named(tmp_path):
    np.savez(tmp_path / "images.npz", images=pixels(3))
    (tmp_path / "table.tsv").write_text("0\ta\n3\tb\n", encoding="utf-8")
    for data, error in {
        f"{tmp_path}/images.npz,{tmp_path}/table.tsv": r"table.tsv, line 2: got '3' for a picture, expected .* 0 to 2",
        f"{tmp_path}/images.npz,{tmp_path}/tabel.tsv": r"tabel.tsv: no such file; did you mean table.tsv",
        f"{tmp_path}/images.npz": r"images.npz: not a table of captions",
        f"{tmp_path}": r"no captions.tsv in it",
        f"{tmp_path}/nothing": r"nothing: no such file or folder",
    }.items():
        with pytest.raises(DataError, match=error):
            open_captions(data)


def test_batches_bring_each_caption_with_its_picture_and_can_go_on():
    data = load_captions("shapes:count=100")
    known = {picture.tobytes(): line for picture, line in zip(*_pictures_and_lines(data), strict=True)}
    batches = CaptionBatches(data.train, begin=data.begin, end=data.end, batch_size=16, seed=3)
    lines = []
    for batch in islice(batches, 6):
        assert batch.source.dtype.is_floating_point is False
        for picture, target in zip(batch.source.numpy(), batch.y.tolist(), strict=True):
            said = data.tokenizer.decode(target[: target.index(data.end)])
            assert known[picture.tobytes()] == said
            lines.append(said)
    assert sorted(lines) == sorted(data.train.pairs.target_lines)  # 90 captions, each once
    assert batches.predicted == sum(len(data.tokenizer.encode(line)) + 1 for line in lines)
    place, wanted = batches.state(), next(iter(batches))
    again = CaptionBatches(data.train, begin=data.begin, end=data.end, batch_size=16, seed=3)
    again.load_state(place)
    found = next(iter(again))
    assert np.array_equal(found.source, wanted.source)
    assert np.array_equal(found.y, wanted.y)


def _pictures_and_lines(data: Captions) -> tuple[list[np.ndarray], list[str]]:
    return list(data.train.pictures_of(range(len(data.train)))), data.train.pairs.target_lines
