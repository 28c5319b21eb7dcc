"""Tables of numbers to windows: what is read, how it is split and scaled, and what is refused, with row and column."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch

from recollect.data.error import DataError
from recollect.data.series.calendar_features import calendar_features, calendar_names
from recollect.data.series.series_data import SeriesFacts, facts_of, load_series
from recollect.data.series.series_table import SeriesTable, TimeSeries, read_series
from recollect.data.series.time_stamps import Frequency
from recollect.data.series.window_sizes import window_sizes
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
        (["05.01.2020", "06.01.2020", "07.01.2020"], "day", 7, "2020-01-08"),
        (["05.01.2020 22:00", "05.01.2020 23:00", "06.01.2020 00:00"], "hour", 24, "2020-01-06 01:00:00"),
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


def monthly(count, year=2020):
    return [f"{year + n // 12}-{n % 12 + 1:02}-01" for n in range(count)]


def weekly(count):
    return [str(np.datetime64("2020-01-01") + 7 * n) for n in range(count)]


def hours_after_days():
    days = [str(np.datetime64("2024-01-01T00") + np.timedelta64(24 * n, "h")) for n in range(30)]
    return days + [str(np.datetime64("2024-01-31T00") + np.timedelta64(n, "h")) for n in range(240)]


def second_of_the_month():
    stamps = monthly(60)
    stamps[30] = stamps[30].removesuffix("01") + "02"
    return stamps


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        (hours_after_days(), r"row 3, column 'date': mixed frequencies: most rows are an hour apart, but 30 of 270"),
        (second_of_the_month(), r"row 32, column 'date': mixed .* 2022-07-02 is not day 1 of its month, as others are"),
        (["2020-01-31", "2020-02-29", "2020-03-30", "2020-04-30", "2020-05-31", "2020-06-30"], "row 4, .*not the last"),
        (["05/01/2020", "06/01/2020"], r"row 2, column 'date': got '05/01/2020', .*whether the day or the month comes"),
    ],
)
def test_uneven_and_unknown_stamps_are_named_by_their_row(stamps, message, tmp_path):
    rows = "".join(f"{stamp},{n % 7}\n" for n, stamp in enumerate(stamps))
    with pytest.raises(DataError, match=message):
        read_series(write(tmp_path, f"date,x\n{rows}"))


@pytest.mark.parametrize("order", [1, -1])
def test_series_of_two_frequencies_in_one_file_lose_no_rows(order, tmp_path):
    rows = [f"{stamp},a,1\n" for stamp in monthly(120)], [f"{stamp},b,2\n" for stamp in weekly(100)]
    text = "date,shop,x\n" + "".join("".join(part) for part in rows[::order])
    row = {1: 123, -1: 3}[order]  # the second week of b
    with pytest.raises(
        DataError, match=rf"row {row}, column 'date': mixed frequencies: .*a month apart, but 2020-01-08"
    ):
        read_series(write(tmp_path, text), series="shop")


@pytest.mark.parametrize("cells", [["05/01/2020", "04/01/2020"], ["5 Jan 2020", "5 Jan 2020"], ["2020.05.01", "x"]])
def test_dates_in_an_unknown_format_are_no_text(cells, tmp_path):
    path = write(tmp_path, "when,x\n" + "".join(f"{cell},{n}\n" for n, cell in enumerate([*cells, cells[0]])))
    with pytest.raises(DataError, match=r"row 2, column 'when': got .* count rows with --set time=none"):
        read_series(path)
    assert not read_series(path, time="none").is_timed


def test_dates_are_found_in_any_column_and_their_order_counts(tmp_path):
    rows = [f"{n % 3},{day:02}.01.2020" for n, day in enumerate([5, 7, 6])]
    with pytest.raises(DataError, match=r"row 4, column 'when': 2020-01-06 comes after 2020-01-07; sort the rows"):
        read_series(write(tmp_path, "\n".join(["x,when", *rows]) + "\n"))


def test_prices_are_no_years(tmp_path):
    found = read_series(write(tmp_path, "price,sold\n1500,1\n1450,2\n1550,3\n"))
    assert found.channels == ("price", "sold")
    years = read_series(write(tmp_path, "anno,sold\n1500,1\n1501,2\n1502,3\n"))
    assert (years.channels, years.frequency.name) == (("sold",), "year")
    counted = read_series(write(tmp_path, "anno,sold\n1500,1\n1501,2\n1502,3\n"), time="none")
    assert counted.channels == ("anno", "sold")


def test_a_target_is_named_once(tmp_path):
    with pytest.raises(DataError, match=r"target: got 'a, b,a', which names 'a' twice"):
        read_series(write(tmp_path, HOURS), target="a, b,a")


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


def two_series(late, length=100, stamped=True):
    values = np.random.default_rng(0).normal(size=(length, 1))
    stamps = np.arange(length)
    parts = (TimeSeries("a", stamps, values), TimeSeries("b", stamps[late:], values[late:]))
    return SeriesTable("data.csv", ("x",), Frequency("steps", 1), parts, is_timed=stamped)


def predicted_rows(data, part, number):
    """Return the first and the last stamp that windows of a series predict in a part."""
    windows = getattr(data, part)
    first = 0 if number == 0 else len(data.table.series[0].stamps)
    own = windows.starts[windows.rows.series[windows.starts].numpy() == number] - first + windows.lookback
    stamps = data.table.series[number].stamps
    return stamps[own.min()], stamps[own.max() + windows.horizon - 1]


def test_all_series_are_cut_at_the_same_instants():
    data = load_series(two_series(late=40), lookback=5, horizon=2, split="0.7,0.1,0.2")
    for number in range(2):
        assert predicted_rows(data, "train", number)[1] == 69
        assert predicted_rows(data, "valid", number) == (70, 79)
        assert predicted_rows(data, "test", number) == (80, 99)
    assert data.facts.means["b"] == pytest.approx(data.table.series[1].values[:30].mean(0))
    counted = load_series(two_series(late=40, stamped=False), lookback=5, horizon=2, split="0.7,0.1,0.2")
    assert predicted_rows(counted, "train", 1)[1] == 40 + 41  # rows of its own: 42 of 60


def test_series_without_windows_are_told(capsys):
    data = load_series(two_series(late=66), lookback=5, horizon=2)
    assert "data.csv: no window of series 'b' in the train part: too few rows there" in capsys.readouterr().err
    assert predicted_rows(data, "test", 1) == (80, 99)
    left = load_series(two_series(late=75), lookback=5, horizon=2)
    assert "series 'b': left out; too few rows in the training part to tell a scale" in capsys.readouterr().err
    assert [one.name for one in left.table.series] == ["a"]
    known = load_series(two_series(late=75), data.facts, lookback=5, horizon=2)  # a run that knows b
    assert [one.name for one in known.table.series] == ["a", "b"]


def test_only_series_without_a_known_scale_need_their_own():
    facts = load_series(two_series(late=0), lookback=5, horizon=2).facts
    flat = TimeSeries("b", np.arange(20), np.ones((20, 1)))
    table = SeriesTable("flat.csv", ("x",), Frequency("steps", 1), (flat,))
    assert facts_of(table, facts).means["b"] == facts.means["b"]
    unknown = SeriesTable("flat.csv", ("x",), Frequency("steps", 1), (TimeSeries("c", flat.stamps, flat.values),))
    with pytest.raises(DataError, match=r"column 'x' of series 'c': constant at 1, 0 to 19: there is nothing"):
        facts_of(unknown, facts)


@pytest.mark.parametrize(
    ("rows", "season", "given", "expected"),
    [
        (1000, 12, (None, None), (24, 96)),
        (144, 12, (None, None), (12, 36)),
        (144, 1, (None, None), (7, 47)),
        (144, 12, (6, None), (6, 36)),
        (144, 12, (None, 60), (12, 60)),
        (144, 12, (None, 95), (3, 95)),
        (144, 12, (40, 100), (40, 100)),  # what is given stays, and is refused where windows are cut
        (20, 7, (None, None), (1, 6)),
    ],
)
def test_windows_of_short_series_are_fitted(rows, season, given, expected, capsys):
    table = table_of(np.random.default_rng(0).normal(size=(rows, 1)))
    found = window_sizes(table, "0.7,0.1,0.2", season, *given)
    assert found == expected
    assert ("fitted to" in capsys.readouterr().err) == (None in given and rows < 1000)
    if None in given:
        assert len(load_series(table, horizon=found[0], lookback=found[1]).train)


def test_instants_before_one_lead_to_it():
    months = Frequency("months", 1, month_end=True)
    last = 1585612800  # 2020-03-31
    assert [months.text(int(stamp)) for stamp in months.before(last, 2)] == ["2020-01-31", "2020-02-29"]
    assert Frequency("seconds", 3600).before(7200, 2).tolist() == [0, 3600]


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
