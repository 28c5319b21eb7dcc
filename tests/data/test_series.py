"""Tables of numbers to windows: what is read, how it is split and scaled, and what is refused, with row and column."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from recollect.data.error import DataError
from recollect.data.series.calendar_features import calendar_features, calendar_names
from recollect.data.series.series_data import SeriesFacts, load_series
from recollect.data.series.series_table import SeriesTable, TimeSeries, read_series
from recollect.data.series.time_stamps import Frequency
from recollect.data.series.windows import WindowBatches
from recollect.data.synthetic.series_generators import GENERATORS, generate_series


def write(folder, text, name="data.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def table_of(values, source="data.csv", names=None):
    values = np.asarray(values, dtype=float)
    stamps = np.arange(len(values))
    return SeriesTable(
        source, names or ("x",) * values.shape[1], Frequency("steps", 1), (TimeSeries("", stamps, values),)
    )


HOURS = "date,a,b\n2024-01-01 22:00,1,5\n2024-01-01 23:00,2,\n2024-01-02 00:00,3,7\n"


def test_a_table_with_a_missing_value(tmp_path):
    found = read_series(write(tmp_path, HOURS))
    assert found.channels == ("a", "b")
    assert (found.frequency.name, found.frequency.season) == ("hour", 24)
    np.testing.assert_array_equal(found.series[0].values, [[1, 5], [2, np.nan], [3, 7]])
    assert found.frequency.text(int(found.series[0].stamps[-1])) == "2024-01-02"


def test_gzip_other_separators_and_a_chosen_column(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(HOURS.replace(",", ";").encode()))
    assert read_series(str(path), target="b").channels == ("b",)
    assert read_series(str(path), target="b, a").channels == ("b", "a")


@pytest.mark.parametrize(
    ("stamps", "name", "season", "following"),
    [
        (["1700", "1701", "1702"], "year", 1, "1703"),
        (["2024-01", "2024-02", "2024-03"], "month", 12, "2024-04"),
        (["2024-01-31", "2024-02-29", "2024-03-31"], "month", 12, "2024-04-30"),
        (["2023Q3", "2023Q4", "2024Q1"], "quarter", 4, "2024-04"),
        (["20240101", "20240108", "20240115"], "week", 52, "2024-01-22"),
        (["2024-01-01", "2024-01-02", "2024-01-03"], "day", 7, "2024-01-04"),
        (["2024-01-01T00:00", "2024-01-01T00:15", "2024-01-01T00:30"], "15 minutes", 96, "2024-01-01 00:45:00"),
        (["5", "6", "7"], "step", 1, "8"),
    ],
)
def test_frequencies(stamps, name, season, following, tmp_path):
    rows = "".join(f"{stamp},{n}\n" for n, stamp in enumerate(stamps))
    found = read_series(write(tmp_path, f"time,x\n{rows}"))
    assert (found.frequency.name, found.frequency.season) == (name, season)
    last = int(found.series[0].stamps[-1])
    assert found.frequency.text(int(found.frequency.after(last, 1)[0])) == following


def test_many_series_in_one_file_start_when_they_start(tmp_path):
    text = "day,shop,sold\n2024-01-01,a,1\n2024-01-02,a,2\n2024-01-02,b,5\n2024-01-03,b,6\n2024-01-03,a,4\n"
    found = read_series(write(tmp_path, text), series="shop", target="sold")
    assert [(one.name, one.values[:, 0].tolist()) for one in found.series] == [("a", [1, 2, 4]), ("b", [5, 6])]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("time,x\n1,1\n3,2\n2,3\n", {}, r"row 4, column 'time': 2 comes after 3; sort the rows"),
        ("time,x\n1,1\n2,2\n2,3\n", {}, r"row 4, column 'time': 2 occurs twice; remove one"),
        ("time,x\n1,1\n2,2\n5,3\n6,4\n", {}, r"row 4, column 'time': a gap: 2 rows are missing after 2, .*gaps=mask"),
        (
            "date,x\n2024-01-01,1\n2024-01-02,2\n2024-01-03,2\n2024-01-03 07:00,2\n",
            {},
            r"row 5, column 'date': mixed frequencies: most rows are a day apart",
        ),
        ("date,x\n2024-01-01,1\nyesterday,2\n", {}, r"row 3, column 'date': got 'yesterday', expected a time stamp"),
        ("time,x\n1,1\n2,two\n3,3\n", {}, r"row 3, column 'x': got 'two', expected a number"),
        ("time,x\n1,1\n2,inf\n3,3\n", {}, r"row 3, column 'x': got 'inf', expected a finite number"),
        ("time,x\n1,1\n2\n", {}, r"row 3: got 1 cells, expected 2"),
        ("time,x\n1,1\n", {"target": "y"}, r"row 1: there is no column 'y'.*its columns are time, x"),
        ("time,price\n1,1\n", {"target": "prise"}, r"there is no column 'prise'; did you mean price\?"),
        ("1,2\n3,4\n", {}, r"row 1: got numbers, expected a header"),
        ("time,x,x\n1,1,2\n", {}, r"row 1: the column 'x' occurs twice"),
        ("time,x\n", {}, r"a header and no rows"),
        ("time,shop,x\n1,a,1\n2,a,2\n1,,3\n", {"series": "shop"}, r"row 4, column 'shop': a series without a name"),
        ("", {}, r"no rows; expected a header"),
        ("time,name\n1,a\n2,b\n", {}, r"row 1: no column of numbers among time, name"),
        ("time;x\n1;1,5\n2;2,5\n", {}, r"no column of numbers among time, x; column 'x' has decimal commas"),
        ("time;x\n1;1,5\n2;2,5\n", {"target": "x"}, r"row 2, column 'x': got '1,5', expected a decimal point"),
        ("time,x\n1,1\n2,-1e40\n3,3\n", {}, r"row 3, column 'x': got '-1e40', expected at most 1e\+30"),
        (
            "date,x\n"
            + "".join(f"2024-01-01 {h:02}:{m:02},1\n" for h in range(8) for m in ((0, 30) if h > 3 else (0,))),
            {},
            r"row 3, column 'date': mixed frequencies: most rows are 30 minutes apart, but 4 of 12 are not",
        ),
    ],
)
def test_bad_tables_are_named_by_row_and_column(text, options, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_series(write(tmp_path, text), **options)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, HOURS, "hours.csv")
    with pytest.raises(DataError, match=r"no such file; did you mean hours.csv"):
        read_series(str(tmp_path / "hour.csv"))


def test_gaps_become_missing_values_where_that_is_asked_for(tmp_path):
    found = read_series(write(tmp_path, "time,x\n1,1\n2,2\n5,3\n6,4\n"), gaps="mask")
    np.testing.assert_array_equal(found.series[0].values[:, 0], [1, 2, np.nan, np.nan, 3, 4])


def test_parts_by_time_scaled_by_the_training_part_alone():
    values = np.arange(100.0)[:, None]
    data = load_series(table_of(values), lookback=5, horizon=2, split="70,10,20")
    assert data.facts.means[""] == [34.5]
    batch = data.test.gather(np.arange(len(data.test)))
    rows = batch.y * data.facts.deviations[""][0] + 34.5
    assert rows.min().item() == pytest.approx(80)  # predicted rows lie in the part, what is read may lie before
    assert rows.max().item() == pytest.approx(99)
    assert len(data.test) == 19
    assert len(data.train) == 64
    changed = values.copy()
    changed[70:] = -1000  # what comes later changes nothing that training knows
    other = load_series(table_of(changed), lookback=5, horizon=2, split="70,10,20")
    assert other.facts == data.facts
    assert torch.equal(other.train.gather(np.arange(64)).y, data.train.gather(np.arange(64)).y)


def test_missing_values_and_late_starts_are_masked_and_filled():
    values = np.random.default_rng(0).normal(size=(40, 2))
    values[:10, 1] = np.nan  # a late start
    values[12, 0] = np.nan
    data = load_series(table_of(values, names=("a", "b")), lookback=4, horizon=2, split="0.6,0.2,0.2")
    first = data.train.gather(np.array([0, 9]))
    assert first.observed[0, :, 1].tolist() == [False] * 4
    assert (first.x[0, :, 1] == 0).all()
    assert first.x[1, 3, 0] == first.x[1, 2, 0]  # the last value before it
    assert first.known[0, :, 1].tolist() == [False, False]
    assert first.count == 6


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.ones((50, 1)), {}, r"column 'x': constant at 1 in the training part, 0 to 34 \(rows 2 to 36\)"),
        (
            np.arange(50.0)[:, None],
            {"horizon": 20},
            r"horizon 20 and lookback 5 need 20 rows of values in the valid part",
        ),
        (np.arange(50.0)[:, None], {"split": "60,20,20"}, r"split: got 60,20,20, 100 rows, but there are 50"),
        (np.arange(50.0)[:, None], {"split": "0.5,0.5"}, r"split: got '0.5,0.5', expected three shares"),
        (np.arange(50.0)[:, None], {"calendar": True}, r"calendar: its time stamps are no dates"),
    ],
)
def test_series_that_cannot_be_used(values, options, message):
    with pytest.raises(DataError, match=message):
        load_series(table_of(values), **{"lookback": 5, "horizon": 2} | options)


def test_calendar_features_of_hours():
    hours = Frequency("seconds", 3600)
    assert calendar_names(hours) == ("hour", "weekday", "yearday")
    assert calendar_names(Frequency("months", 1)) == ("yearday",)
    assert calendar_names(Frequency("months", 12)) == ()
    monday_noon = np.array([1704110400])  # 2024-01-01 12:00
    np.testing.assert_allclose(calendar_features(monday_noon, hours)[0, [0, 3]], [0, -1], atol=1e-6)


def test_batches_resume_where_they_stopped():
    data = load_series(generate_series("sine:length=200"), lookback=10, horizon=2)
    batches = WindowBatches(data.train, 32, seed=1)
    source = iter(batches)
    for _ in range(6):  # into the second epoch
        next(source)
    position = batches.state()
    expected = [next(source).x for _ in range(5)]
    again = WindowBatches(data.train, 32, seed=2)
    again.load_state(position)
    assert all(torch.equal(batch.x, x) for batch, x in zip(again, expected, strict=False))


def test_every_window_once_an_epoch_the_last_batch_included():
    data = load_series(generate_series("sine:length=200"), lookback=10, horizon=2)
    seen = [batch.x for batch in data.train.in_order(32)]
    assert sum(map(len, seen)) == len(data.train)
    assert len(data.train) % 32  # the last one is smaller


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_series_are_the_same_every_time(name):
    ours, again = generate_series(name), generate_series(f"{name}:seed=0")
    other = generate_series(f"{name}:seed=1,length=50")
    assert ours.digest == again.digest != other.digest
    assert len(other.series[0].values) == 50


def test_the_sine_without_noise_is_a_sine():
    found = generate_series("sine:noise=0").series[0].values[:, 0]
    np.testing.assert_allclose(found, np.sin(0.01 * np.arange(1, 1001)), atol=1e-12)


def test_facts_are_saved_and_loaded(tmp_path):
    facts = load_series(generate_series("seasons"), lookback=12, horizon=2).facts
    facts.save(tmp_path / "series.json")
    assert SeriesFacts.load(tmp_path / "series.json") == facts
