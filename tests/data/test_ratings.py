"""Ratings: what is read, how it is divided, and what is refused."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from recollect.data.error import DataError
from recollect.data.ratings.rating_files import read_ratings
from recollect.data.ratings.ratings import RatingBatches, load_ratings
from recollect.data.synthetic.tastes import MIDDLE, NOISE, hidden_tastes

ROWS = [("ann", "film 1", 5.0), ("bob", "film 1", 2.5), ("ann", "film 2", 1.0)]
TABLES = {
    "plain.csv": "ann,film 1,5\nbob,film 1,2.5\nann,film 2,1\n",
    "named.csv": "user,item,rating\nann,film 1,5\nbob,film 1,2.5\nann,film 2,1\n",
    "quoted.csv": '"ann","film 1",5\r\n"bob","film 1",2.5\r\n"ann","film 2",1\r\n',
    "u.data": "ann\tfilm 1\t5\t881250949\nbob\tfilm 1\t2.5\t8\n\nann\tfilm 2\t1\t9\n",
    "ratings.dat": "ann::film 1::5::978300760\nbob::film 1::2.5::9\nann::film 2::1::9\n",
    "many;.csv": "user;item;rating\nann;film 1;5\nbob;film 1;2.5\nann;film 2;1\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_as_people_have_them(name, tmp_path):
    (tmp_path / name).write_text(TABLES[name], newline="")
    found = list(read_ratings(str(tmp_path / name)))
    assert [row[:3] for row in found] == ROWS
    assert f"line {TABLES[name].count(chr(10))}" in found[-1].where


def test_columns_by_name_and_gzip(tmp_path):
    path = tmp_path / "r.inter.gz"
    text = "stamp:float\trating:float\titem_id:token\tuser_id:token\n1\t5\tfilm 1\tann\n2\t2.5\tfilm 1\tbob\n"
    path.write_bytes(gzip.compress(text.encode()))
    found = read_ratings(str(path), "user_id:token,item_id:token,rating:float")
    assert [row[:3] for row in found] == ROWS[:2]


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("ann,film 1,5\nbob,film 2,good\n", None, "line 2: the rating 'good' is no number"),
        ("ann,film 1,5\nbob,film 2,nan\n", None, "line 2: the rating 'nan' is no number"),
        ("ann,film 1,5\nbob,film 2\n", None, "line 2: 2 cells, but the first line has 3"),
        (
            "ann,film 1,5\nbob,Apollo, 13,4\n",
            None,
            "line 2: 4 cells, but the first line has 3; mend the row, with quotes",
        ),
        ("ann,film 1,5\n,film 2,3\n", None, "line 2: the user is empty"),
        ("ann,5\n", None, "line 1: 2 cells, expected 3: user,item,rating"),
        ("who,what,stars\nann,film 1,5\n", "who,what,star", "no column 'star'; there are: who, what, stars; did you"),
        ("who,what,stars\nann,film 1,5\n", "who,what", "field: got 'who,what', expected three columns"),
        ("", None, "an empty file"),
        ("ann,film 1,5\n", None, "got 1 ratings, expected 10 or more"),
        ("ann,film 1,5\n" * 12, None, "every rating is 5"),
    ],
)
def test_bad_tables_are_refused_with_their_line(text, field, message, tmp_path):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        load_ratings(str(path), field)


def test_a_missing_file_is_named():
    with pytest.raises(DataError, match="tast: no such file; did you mean tastes"):
        load_ratings("tast")


def test_parts_share_no_rating_and_are_the_same_again():
    data = load_ratings("tastes:users=30,films=20,each=10")
    assert [len(part) for part in (data.train, data.valid, data.test)] == [240, 30, 30]
    pairs = {tuple(pair) for part in (data.train, data.valid, data.test) for pair in part.pairs.tolist()}
    unknown = sum(1 for part in (data.valid, data.test) for pair in part.pairs if 0 in pair)
    assert len(pairs) + unknown >= 300
    assert load_ratings("tastes:users=30,films=20,each=10").name == data.name
    assert load_ratings("tastes:users=30,films=20,each=9").name != data.name


def test_given_parts_are_kept_whole(tmp_path):
    for part, count in (("train", 20), ("test", 5)):
        (tmp_path / f"{part}.csv").write_text("".join(f"u{i},i{i % 3},{i}\n" for i in range(count)))
    data = load_ratings(str(tmp_path / "train.csv"), test=str(tmp_path / "test.csv"))
    assert len(data.test) == 5
    assert len(data.train) + len(data.valid) == 20


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_part_without_ratings_is_refused(part, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("user,item,rating\n")
    with pytest.raises(DataError, match=r"empty\.csv: no ratings in it, expected at least one, as"):
        load_ratings("tastes:users=30,films=20,each=10", **{part: str(empty)})


def test_a_rating_that_stands_twice_is_not_tested_on_where_it_was_learned(tmp_path):
    path = tmp_path / "r.csv"
    rows = [f"u{i % 10},i{i // 10},{i % 5}" for i in range(100)]
    path.write_text("\n".join([*rows, *rows[:60]]) + "\n")
    data = load_ratings(str(path))
    train, valid, test = ({tuple(pair) for pair in part.pairs.tolist()} for part in (data.train, data.valid, data.test))
    assert not train & (valid | test)


def test_a_quote_in_a_name_between_tabs_is_a_part_of_it(tmp_path):
    path = tmp_path / "r.tsv"
    path.write_text("".join(f'ann\t"Film {i}\t{i % 5}\n' for i in range(20)))
    data = load_ratings(str(path))
    assert len(data.train) + len(data.valid) + len(data.test) == 20
    assert all(name.startswith('"Film') for name in data.items.names[1:])


def test_ratings_are_dot_products_and_noise():
    made = hidden_tastes(300, 200, seed=0)
    errors = []
    for user, film, value, _ in read_ratings("tastes"):
        likes = made.users[int(user.partition("-")[2])]
        has = made.films[int(film.partition("-")[2])]
        errors.append(value - MIDDLE - sum(a * b for a, b in zip(likes, has, strict=True)))
    assert np.std(errors) == pytest.approx(NOISE, rel=0.02)
    assert np.mean(errors) == pytest.approx(0, abs=0.01)


def test_batches_resume_where_they_stopped():
    part = load_ratings("tastes:users=30,films=20,each=10").train
    batches = RatingBatches(part, 32, seed=3)
    drawn = [batch for batch, _ in zip(batches, range(11), strict=False)]
    assert sum(batch.count for batch in drawn[:8]) == len(part)  # the last, smaller batch counts
    state = batches.state()
    following = next(iter(batches))
    other = RatingBatches(part, 32, seed=9)
    other.load_state(state)
    assert (next(iter(other)).x == following.x).all()
