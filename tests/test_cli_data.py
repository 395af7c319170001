"""Commands on files of users: what they write is what the estimators say, and mistakes get a line and an exit code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace as Namespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import wishflow as wf
from wishflow.cli.commands import app
from wishflow.cli.options import Reading, RowColumns, Talking
from wishflow.cli.regression import Source, read_rows
from wishflow.cli.rivals import VectorAutoregression
from wishflow.cli.series_files import SeriesData, check_regular
from wishflow.cli.tables import guessed_time, marked_number, numbers, read_table, time_index
from wishflow.cli.terminal import answering
from wishflow.numerics.tables import in_words, level_name
from wishflow.series.data.calendar import harmonics
from wishflow.series.fitting import _warn_of_useless


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer_of(*arguments):
    """The JSON answer of a command that succeeds."""
    result = run(*arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of rows, of classes and of series, and models of them."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-2.0, 2.0, (2, 60))
    y = np.sin(2 * a) + b + 0.1 * rng.normal(size=60)
    rows = pd.DataFrame({"a": a, "b": b, "y": y, "z": 2 * y + rng.normal(size=60)})
    rows.to_csv(folder / "rows.csv", index=False)
    rows[["a", "b"]].head(7).to_csv(folder / "new.csv", index=False)
    kinds = rows[["a", "b"]].assign(kind=np.where(y > 0, "high", "low"))
    kinds.to_csv(folder / "classes.csv", index=False)
    level = np.zeros((80, 2))
    for t in range(1, 80):
        level[t] = 0.9 * level[t - 1] + rng.normal(size=2) @ [[1.0, 0.6], [0.0, 0.8]]
    series = pd.DataFrame(level, columns=["p", "q"])
    series.insert(0, "date", pd.date_range("2024-01-01", periods=80, freq="h"))
    series.to_csv(folder / "series.csv", index=False)
    series.head(70).to_csv(folder / "past.csv", index=False)
    small = ("--max-iter", 20)
    both = ("--target", "y", "--target", "z", "--model", "sgp")
    answer_of("fit", folder / "rows.csv", *both, "-o", folder / "rows.wishflow", *small)
    answer_of("fit", folder / "classes.csv", "-t", "kind", "-o", folder / "classes.wishflow", *small)
    ends = ("--horizon", "3h", "-o", folder / "past_forecast.csv", "--save", folder / "series.wishflow")
    answer_of("forecast", folder / "past.csv", "--time", "date", *ends, *small)
    return folder


def test_fit_and_predict_are_those_of_the_estimator(folder):
    """Several targets, columns found by name in any order, all of their law beside the columns of the table."""
    new = pd.read_csv(folder / "new.csv")
    new[["b", "a"]].assign(note="x").to_csv(folder / "mixed.csv", index=False)
    answer = answer_of("predict", folder / "rows.wishflow", folder / "mixed.csv", "-o", folder / "out.csv")
    found = pd.read_csv(folder / "out.csv")
    model = wf.load(folder / "rows.wishflow")
    mean, sd = model.predict(new, return_std=True)
    np.testing.assert_allclose(found[["y_mean", "z_mean"]], mean, rtol=1e-9)
    np.testing.assert_allclose(found[["y_sd", "z_sd"]], sd, rtol=1e-9)
    np.testing.assert_allclose(found["z_q95"], model.predict_quantiles(new, [0.95])[:, 1, 0], rtol=1e-9)
    assert answer["rows"] == 7 and list(found["note"]) == ["x"] * 7
    assert model.target_names_ == ["y", "z"] and model.feature_names_in_.tolist() == ["a", "b"]


def test_blocks_of_rows_do_not_change_predictions(folder, monkeypatch):
    whole = run("predict", folder / "rows.wishflow", folder / "new.csv", "--quiet")
    monkeypatch.setattr("wishflow.cli.regression.BLOCK", 3)
    parts = run("predict", folder / "rows.wishflow", folder / "new.csv", "--quiet")
    assert whole.exit_code == 0 and whole.stdout == parts.stdout


def test_a_text_target_is_classified(folder):
    result = run("predict", folder / "classes.wishflow", folder / "new.csv", "--no-inputs", "--quiet")
    lines = [line.split(",") for line in result.stdout.splitlines()]
    assert lines[0] == ["kind_class", "p_high", "p_low"]
    probabilities = np.array([line[1:] for line in lines[1:]], float)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert [line[0] for line in lines[1:]] == ["high" if p > 0.5 else "low" for p in probabilities[:, 0]]


def test_the_forecast_is_that_of_the_saved_model(folder):
    found = pd.read_csv(folder / "past_forecast.csv", parse_dates=["date"])
    forecast = wf.load(folder / "series.wishflow").forecast(3)
    np.testing.assert_allclose(found[["p_mean", "q_mean"]], forecast.mean, rtol=1e-9)
    np.testing.assert_allclose(found["q_q05"], forecast.quantile(0.05)["q"], rtol=1e-9)
    assert list(found["date"]) == list(forecast.index)


def test_a_saved_model_goes_on_with_later_rows(folder):
    """Of a file that holds its past too: rows it has seen are left out, and the others move its end."""
    out = folder / "later.csv"
    answer = answer_of(
        "forecast", folder / "series.csv", "--from", folder / "series.wishflow", "--horizon", 2, "-o", out
    )
    assert answer["first"] == "2024-01-04 08:00:00" and answer["steps"] == 2
    y = pd.read_csv(folder / "series.csv", index_col=0, parse_dates=True)
    expected = wf.load(folder / "series.wishflow").update(y.iloc[70:]).forecast(2)
    np.testing.assert_allclose(pd.read_csv(out)[["p_mean", "q_mean"]], expected.mean, rtol=1e-9)


def test_rows_out_of_order_are_sorted(folder):
    past = pd.read_csv(folder / "past.csv")
    past.sample(frac=1.0, random_state=1).to_csv(folder / "shuffled.csv", index=False)
    out = folder / "shuffled_out.csv"
    result = run("forecast", folder / "shuffled.csv", "--horizon", 3, "-o", out, "--max-iter", 20)
    assert result.exit_code == 0 and "were not in order of time" in result.stderr
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.read_csv(folder / "past_forecast.csv"))


def test_parquet_files_hold_the_same(folder):
    pytest.importorskip("pyarrow", reason="Parquet needs the extra parquet")
    pd.read_csv(folder / "new.csv").to_parquet(folder / "new.parquet")
    answer_of("predict", folder / "rows.wishflow", folder / "new.parquet", "-o", folder / "out.parquet")
    answer_of("predict", folder / "rows.wishflow", folder / "new.csv", "-o", folder / "again.csv")
    pd.testing.assert_frame_equal(pd.read_parquet(folder / "out.parquet"), pd.read_csv(folder / "again.csv"))


@pytest.mark.parametrize(
    "form",
    [
        {"sep": ";"},
        {"sep": ";", "decimal": ","},
        {"sep": "\t", "decimal": ",", "encoding": "utf-8-sig"},
        {"sep": "|", "encoding": "cp1252"},
        {"index": True},
    ],
    ids=str,
)
def test_files_of_spreadsheets_are_read_as_they_are(tmp_path, form):
    """Separators, decimal signs, row numbers without a name; an encoding has to be named."""
    table = pd.DataFrame({"größe, in m²": [1.5, 2.25, np.nan], "n": [1, 2, 3], "day": ["31/12/2024"] * 3})
    table.to_csv(tmp_path / "table.csv", **{"index": False, **form})
    encoding = form.get("encoding") if form.get("encoding") == "cp1252" else None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = read_table(tmp_path / "table.csv", Reading(encoding=encoding))
    pd.testing.assert_frame_equal(found, table, check_dtype=False)
    assert ["counts the rows" in str(warning.message) for warning in told] == [True] * ("index" in form)


def test_thousands_are_not_taken_for_decimals(tmp_path):
    """1,250 alone may be both; beside 12,5 it has decimals."""
    (tmp_path / "a.csv").write_text("a\n1,250\n2,000\n")
    with pytest.raises(wf.errors.DataError, match="more cells than the header has names"):
        read_table(tmp_path / "a.csv", Reading())
    pd.DataFrame({"a": ["1,250", "2,000"], "b": 1}).to_csv(tmp_path / "a.csv", index=False, sep=";")
    with pytest.raises(wf.errors.DataError, match=r"'1,250'.*thousands or decimals"):
        read_table(tmp_path / "a.csv", Reading())
    assert read_table(tmp_path / "a.csv", Reading(decimal=","))["a"].tolist() == [1.25, 2.0]
    pd.DataFrame({"a": ["1,250", "12,5"], "b": 1}).to_csv(tmp_path / "a.csv", index=False, sep=";")
    assert read_table(tmp_path / "a.csv", Reading())["a"].tolist() == [1.25, 12.5]
    for reading, said in ((Reading(decimal="x"), "expected '.' or ','"), (Reading(encoding="cp"), "is unknown")):
        with pytest.raises(wf.errors.OptionError, match=said):
            read_table(tmp_path / "a.csv", reading)


def read_text(path, text, **reading):
    """The table of a CSV file that holds this text."""
    path.write_text(text)
    return read_table(path, Reading(**reading))


@pytest.mark.parametrize("cell", ["-300", "+300", "300"])
def test_signs_do_not_make_thousands_decimals(tmp_path, cell):
    """1,250 beside -300 was read as 1.25 once."""
    with pytest.raises(wf.errors.DataError, match=r"'1,250'.*thousands or decimals"):
        read_text(tmp_path / "a.csv", f"profit;n\n1,250;1\n{cell};2\n-2,400;3\n")


def test_points_between_thousands_are_no_decimal_points(tmp_path):
    """1.234 beside decimal commas was read as 1.234 once, also where the comma was named as the decimal sign."""
    path = tmp_path / "a.csv"
    sales = "sales;price;y\n1.234;12,5;1\n-12.500;0,5;2\n;1,5;3\n950;2,5;4\n1.234.567;1,25;5\n"
    with pytest.raises(wf.errors.DataError, match=r"'1\.234' in column 'sales'.*two ways.*--decimal ','"):
        read_text(path, sales)
    found = numbers(read_text(path, sales, decimal=","), ["sales", "price"], path, "")
    np.testing.assert_array_equal(found["sales"], [1234.0, -12500.0, np.nan, 950.0, 1234567.0])
    np.testing.assert_array_equal(found["price"], [12.5, 0.5, 1.5, 2.5, 1.25])
    # Decimal commas of the column itself say what its points are, and dates are no thousands.
    found = read_text(path, "day;sales;price\n31.12.2024;1.234,5;12,5\n31.12.2024;2.000;0,5\n")
    assert found["sales"].tolist() == [1234.5, 2000.0]
    assert found["day"].tolist() == ["31.12.2024"] * 2
    with pytest.raises(wf.errors.DataError, match=r"'1\.234' and '3\.5'.*two ways"):
        read_text(path, "a;b\n1.234;0,5\n3.5;1,5\n", decimal=",")


def test_long_columns_are_read_as_one(tmp_path):
    """Read in pieces, the numbers of the first piece would be text with points beside the text of the last."""
    found = read_text(tmp_path / "a.csv", "a;b\n" + "1,234;0,5\n" * 300_000 + "1.234;0,5\n", decimal=",")
    assert found["a"].iloc[[0, -1]].tolist() == [1.234, 1234.0]


def test_commas_are_decimals_only_where_nothing_speaks_against_it(tmp_path):
    """Answers such as "1,2" of a survey beside 3.5 became numbers once."""
    path = tmp_path / "a.csv"
    answers = 'answers,area\n"1,2",3.5\n3,4.5\n"2,3",1.0\n'
    assert read_text(path, answers)["answers"].tolist() == ["1,2", "3", "2,3"]
    whole = 'answers,n\n"1,2",1\n3,2\n"2,3",3\n'
    with pytest.raises(wf.errors.DataError, match=r"'1,2' beside commas between its columns.*--decimal ','"):
        read_text(path, whole)
    assert read_text(path, whole, decimal=",")["answers"].tolist() == [1.2, 3.0, 2.3]
    assert read_text(path, whole, decimal=".")["answers"].tolist() == ["1,2", "3", "2,3"]
    with pytest.raises(wf.errors.DataError, match=r"'1,2' beside cells such as '3\.5'.*--decimal ','"):
        read_text(path, "answers;area\n1,2;3.5\n3;4.5\n2,3;x\n")


def test_commas_separate_thousands_where_points_say_so(tmp_path):
    """Exports such as 1,234.50 were text, and a target of them was taken for classes."""
    path = tmp_path / "a.csv"
    found = read_text(path, 'price,n\n"1,234.50","2,000"\n-950.00,"1,250"\n,"3,000"\n')
    np.testing.assert_array_equal(found["price"], [1234.5, -950.0, np.nan])
    assert found["n"].tolist() == [2000, 1250, 3000]
    assert read_text(path, "a;b\n1,250;1\n2,000;2\n", decimal=".")["a"].tolist() == [1250, 2000]


def test_damage_of_text_files_is_named(tmp_path):
    path = tmp_path / "a.csv"
    with pytest.raises(wf.errors.DataError, match=r"line 3 of .* has 3 cells; expected 2"):
        read_text(path, "a,b\n1,2\n1,2,3\n")
    with pytest.warns(UserWarning, match=r"names 'a' more than once; the second column is read as 'a\.1'"):
        assert list(read_text(path, "a,a\n1,2\n")) == ["a", "a.1"]
    with pytest.warns(UserWarning, match="a column with neither a name nor values"):
        assert list(read_text(path, "a,b,\n1,2,\n3,4,\n")) == ["a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(read_text(path, "a.1,b\n1,2\n")) == ["a.1", "b"]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([f"${k}.50" for k in range(40)], r"numbers with other signs, such as '\$0\.50' in line 2"),
        (["50 %", "60 %"] * 20, "--task classify"),
        (pd.date_range("2024-01-01", periods=40).astype(str), "40 different values in 40 rows"),
    ],
    ids=["dollars", "percents", "dates"],
)
def test_numbers_with_signs_and_dates_are_no_classes(folder, cells, said):
    """Each of them was a class of its own."""
    table = pd.read_csv(folder / "rows.csv").head(40).assign(y=cells)
    table.to_csv(folder / "signs.csv", index=False)
    result = run("fit", folder / "signs.csv", "--target", "y")
    assert result.exit_code == 1 and re.search(said, result.stderr), result.output
    labels = read_rows(Source(folder / "signs.csv", RowColumns(task="classify")), ["y"])
    assert labels.classifies


def test_ids_among_the_inputs_are_named(folder):
    rows = pd.read_csv(folder / "rows.csv")
    rows.assign(number=np.arange(100, 160)).to_csv(folder / "ids.csv", index=False)
    fit = ("fit", folder / "ids.csv", "-t", "y", "--model", "sgp", "--max-iter", 5, "-o", folder / "ids.wishflow")
    assert "if it is an id, leave it out with --drop number." in run(*fit).stderr
    assert "if it is an id" not in run(*fit, "--drop", "number").stderr


@pytest.mark.parametrize("target", [",", ""])
def test_targets_without_a_name_are_named(folder, target):
    result = run("fit", folder / "rows.csv", "--target", target)
    assert result.exit_code == 2 and "--target names no column" in result.stderr


@pytest.mark.parametrize("cell", ["31.01.2024", "1.2.3", "10.0.0.1", "ABC001", "CAT 1"])
def test_dates_versions_addresses_and_codes_are_no_amounts(cell):
    assert marked_number(pd.Series([cell, cell])) is None


def test_lists_of_targets_and_quantiles_may_have_commas(folder):
    fit = ("fit", folder / "rows.csv", "-t", "y,z", "--model", "sgp", "--max-iter", 5, "-o", folder / "yz.wishflow")
    assert answer_of(*fit)["targets"] == ["y", "z"]
    predict = ("predict", folder / "yz.wishflow", folder / "new.csv", "-o", folder / "yz.csv", "--no-inputs")
    assert answer_of(*predict, "--quantile", "0.9,0.1")["columns"][2:4] == ["y_q10", "y_q90"]
    assert "--quantile x given; expected probabilities" in run(*predict, "--quantile", "0.1,x").stderr
    assert "--quantile names no probability" in run(*predict, "--quantile", ",").stderr


def test_the_column_of_dates_is_found(tmp_path):
    """Dates that begin with the day, with empty cells, or of a given format."""
    path = tmp_path / "a.csv"
    days = pd.date_range("2024-01-01", periods=40)
    frame = pd.DataFrame({"y": range(40), "day": days.strftime("%d.%m.%Y"), "kind": "may"})
    assert guessed_time(frame, path) == "day"
    assert time_index(frame, "day", path)[-1] == days[-1]
    serviced = frame.assign(last_service=[None] * 39 + ["2024-01-31"])
    assert guessed_time(serviced, path) == "day"
    frame.loc[3, "day"] = None
    assert guessed_time(frame, path) == "day"
    whole = pd.DataFrame({"y": range(40), "day": days.strftime("%Y%m%d").astype(int)})
    assert guessed_time(whole, path, "%Y%m%d") == "day"
    assert time_index(whole, "day", path, "%Y%m%d")[-1] == days[-1]
    with pytest.warns(UserWarning, match=r"numbers such as 20240101, .*--date-format %Y%m%d"):
        assert time_index(whole, "day", path)[-1] == 20240209


@pytest.mark.parametrize(("form", "year"), [("%m%d%Y", 2024), ("%d%m%Y", 2024), ("%y%m%d", 2005), ("%Y%m%d%H", 2024)])
def test_dates_that_lost_the_zero_at_their_beginning_are_read(tmp_path, form, year):
    """01022024 is read as the number 1022024, which was taken for the 22nd of October."""
    days = pd.date_range(f"{year}-01-01", periods=60, freq="7D")
    frame = pd.DataFrame({"y": np.arange(60.0), "day": days.strftime(form).astype(int)})
    assert guessed_time(frame, tmp_path / "a.csv", form) == "day"
    assert (time_index(frame, "day", tmp_path / "a.csv", form) == days).all()


def test_options_of_a_fit_are_refused_beside_a_saved_model(folder):
    """They were ignored."""
    series = ("--from", folder / "series.wishflow", "--horizon", 3)
    rows = ("evaluate", folder / "rows.csv", "--from", folder / "rows.wishflow")
    for given, option in (
        (("forecast", folder / "series.csv", *series, "--freq", "D"), "--freq"),
        (("evaluate", folder / "series.csv", *series, "--max-iter", 5), "--max-iter"),
        ((*rows, "--members", 3), "--members"),
    ):
        result = run(*given)
        assert result.exit_code == 2 and f"{option} is for a new fit" in result.stderr
    for given, said in (
        (("evaluate", folder / "series.csv", *series, "--members", 3), "--members is for rows"),
        ((*rows, "--freq", "D"), "--freq is for series"),
    ):
        result = run(*given)
        assert result.exit_code == 2 and said in result.stderr


def test_a_step_much_shorter_than_the_gaps_is_named():
    """Of a grid with one value in 24 rows, forecasts of 1e26 came without a word."""
    days = pd.date_range("2024-01-01", periods=40, name="date")
    data = SeriesData(pd.DataFrame({"y": np.arange(40.0)}, days))
    with pytest.warns(UserWarning, match=r"--freq h is much shorter than the gaps between rows \(median 24 steps\)"):
        assert check_regular(data, "h").freq == "h"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_regular(data, "D")


def test_a_horizon_longer_than_the_held_out_rows_is_found_before_the_fit(folder, monkeypatch):
    monkeypatch.setattr("wishflow.cli.evaluation.built", None)
    evaluate = ("evaluate", folder / "series.csv", "--time", "date")
    for more in ((), ("--freq", "D")):
        result = run(*evaluate, "--horizon", 17, *more)
        assert result.exit_code == 2 and "beyond the 16 held-out rows" in result.stderr
        result = run(*evaluate, "--horizon", 6_000_000, *more)
        assert result.exit_code == 2 and "reaches beyond the year" in result.stderr


@pytest.mark.parametrize("more", [(), ("--freq", "h")])
def test_covariates_that_are_a_second_early_are_those_of_the_step(folder, more):
    series = pd.read_csv(folder / "series.csv", parse_dates=["date"]).assign(x=np.arange(80.0))
    series.loc[77:, ["p", "q"]] = np.nan
    series.loc[[70, 76], "date"] += pd.Timedelta("2s")  # the forecast ends two seconds after the last row
    series.to_csv(folder / "late.csv", index=False)
    forecast = ("forecast", folder / "late.csv", "--covariates", "x", "--max-iter", 5, "-o", folder / "late_out.csv")
    assert answer_of(*forecast, "--horizon", 3, *more)["steps"] == 3
    result = run(*forecast, "--horizon", 4, *more)
    assert result.exit_code == 1 and "the covariates end at" in result.stderr


def test_steps_of_numbers_are_numbers(folder):
    series = pd.read_csv(folder / "series.csv").drop(columns="date")
    series.insert(0, "t", np.arange(80) / 4 + np.where(np.arange(80) % 9 == 0, 0.03, 0.0))
    series.to_csv(folder / "numbers.csv", index=False)
    numbers = ("--time", "t", "--freq", 0.25, "--horizon", 3, "--max-iter", 5)
    assert answer_of("forecast", folder / "numbers.csv", *numbers, "-o", folder / "numbers_out.csv")["steps"] == 3
    assert answer_of("evaluate", folder / "numbers.csv", *numbers)["horizon"] == "3"


@pytest.mark.parametrize(("share", "n_rows"), [("0.001", 80), ("0.999", 0)])
def test_shares_that_leave_no_rows_are_refused(folder, share, n_rows):
    evaluate = ("evaluate", folder / "series.csv", "--time", "date", "--horizon", 2, "--freq", "D")
    result = run(*evaluate, "--test", share)
    assert result.exit_code == 2 and f"--test {share} leaves {n_rows} of 80 rows for the fit" in result.stderr


def test_labels_become_inputs_of_fit_and_of_predict(folder):
    """As by hand with a column of 0 and 1 for each label; labels in another order or by other numbers of rows too."""
    rows = pd.read_csv(folder / "rows.csv").drop(columns="z")
    rows["zone"], rows["note"] = np.where(rows["a"] > 0, 20, 10), "x"
    rows.to_csv(folder / "zones.csv", index=False)
    fit = ("fit", folder / "zones.csv", "-t", "y", "--model", "sgp", "--max-iter", 5, "-o", folder / "zones.wishflow")
    assert "--drop note" in run(*fit).stderr
    answer = answer_of(*fit, "--categories", "zone", "--drop", "note")
    assert answer["inputs"] == ["a", "b", "zone=10", "zone=20"]
    by_hand = rows[["a", "b"]].assign(**{f"zone={zone}": (rows["zone"] == zone) * 1.0 for zone in (10, 20)})
    expected = wf.load(folder / "zones.wishflow").predict(by_hand)
    holes = rows.assign(zone=rows["zone"].where(rows.index != 3))  # numbers are floats beside an empty cell
    holes.iloc[::-1].to_csv(folder / "zones_new.csv", index=False)
    predict = ("predict", folder / "zones.wishflow", folder / "zones_new.csv", "-o", folder / "zones_out.csv")
    assert "column 'zone' of" in run(*predict).stderr
    answer_of(*predict, "--drop-missing")
    found = pd.read_csv(folder / "zones_out.csv")["y_mean"]
    np.testing.assert_allclose(found[::-1], np.delete(expected, 3), rtol=1e-9)
    holes.drop(columns="zone").to_csv(folder / "zones_new.csv", index=False)
    assert "lacks 'zone';" in run(*predict).stderr


def test_outputs_are_checked_before_the_work(folder, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the data were read")

    monkeypatch.setattr("wishflow.cli.regression.read_table", never)
    result = run("fit", folder / "rows.csv", "-t", "y", "-o", folder / "nowhere" / "m.wishflow")
    assert result.exit_code == 2 and "folder that does not exist" in result.stderr


def test_packages_that_are_missing_are_named_before_the_work(folder, monkeypatch):
    monkeypatch.setattr("wishflow.cli.tables.find_spec", lambda name: None)
    monkeypatch.setattr("wishflow.cli.commands.find_spec", lambda name: None)
    result = run("predict", folder / "gone.wishflow", folder / "new.csv", "-o", folder / "out.parquet")
    assert result.exit_code == 1 and "pip install 'wishflow[parquet]'" in result.stderr
    result = run("demo", "--output", folder / "demo")
    assert result.exit_code == 2 and "pip install 'wishflow[demo]'" in result.stderr


def test_warnings_of_training_are_shown(capsys):
    """All of category RuntimeWarning were hidden, also that forecasts are of no use."""
    useless = Namespace(rolled=Namespace(by_band=lambda: np.array([1e6])))
    with answering(Talking()):
        _warn_of_useless(useless)
        np.log(np.zeros(2))
    told = capsys.readouterr().err
    assert told.count("Warning: ") == 1 and "of no use; set freq" in " ".join(told.split())


def test_errors_are_one_line_and_debug_shows_where(folder):
    result = run("fit", folder / "gone.csv", "-t", "y")
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1 and not result.stdout
    result = run("fit", folder / "gone.csv", "-t", "y", "--debug")
    assert isinstance(result.exception, wf.errors.DataError)
    result = run("fit", folder / "gone.csv", "-t", "y", "--json")
    assert json.loads(result.stdout)["exit_code"] == 1 and not result.stderr


@pytest.mark.parametrize(("level", "name"), [(0.05, "q05"), (0.5, "q50"), (0.025, "q2.5"), (0.999, "q99.9")])
def test_names_of_quantiles(level, name):
    assert level_name(level) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [(13456.0, "13460"), (-0.0123456, "-0.01235"), (51.42, "51.42"), (0.0, "0"), (1.2e-7, "1.2e-07"), (np.nan, "nan")],
)
def test_scores_are_written_as_people_write_numbers(value, text):
    assert in_words(value) == text


@pytest.mark.parametrize("command", ["fit", "predict", "forecast", "evaluate", "info", "demo"])
def test_help_has_an_example(command):
    text = " ".join(run(command, "--help").stdout.split())
    assert f"Example: wishflow {command}" in text or f"Examples: wishflow {command}" in text


def test_the_help_of_all_has_an_example_and_the_exit_codes():
    text = " ".join(run("--help").stdout.split())
    assert "Example: wishflow fit houses.csv" in text and "Exit codes: 0 success" in text


def test_help_loads_nothing_heavy():
    code = "import sys, wishflow.cli; print(sorted({'jax', 'pandas', 'numpy', 'scipy'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_held_out_scores_of_rows_are_those_of_the_estimators(folder):
    """The split is that of the seed; the sparse GP beside the model is one that has seen the same rows."""
    arguments = ("evaluate", folder / "rows.csv", "-t", "y", "--drop", "z", "--model", "sgp", "--test", 0.25)
    answer = answer_of(*arguments, "--seed", 3, "-o", folder / "scores.csv", "--report", folder / "rows.html")
    rows = pd.read_csv(folder / "rows.csv")
    order = np.random.default_rng(3).permutation(60)
    train, held = rows.iloc[np.sort(order[15:])], rows.iloc[np.sort(order[:15])]
    model = wf.SparseGPRegressor(random_state=3).fit(train[["a", "b"]], train["y"])
    scores = answer["scores"]["sgp"]
    assert scores["log_density"] == pytest.approx(model.log_prob(held[["a", "b"]], held["y"]).mean(), rel=1e-6)
    assert answer["rows"] == 15 and pd.read_csv(folder / "scores.csv")["rmse"][0] == pytest.approx(scores["rmse"])
    assert "observed against predicted" in (folder / "rows.html").read_text(encoding="utf-8")


def test_a_saved_model_is_scored_by_a_file(folder):
    answer = answer_of("evaluate", folder / "classes.csv", "--from", folder / "classes.wishflow")
    rows = pd.read_csv(folder / "classes.csv")
    expected = wf.load(folder / "classes.wishflow").log_prob(rows[["a", "b"]], rows["kind"]).mean()
    assert answer["scores"]["classes.wishflow"]["log_prob"] == pytest.approx(expected)


def test_series_are_scored_beside_a_var_and_a_random_walk(folder):
    report = folder / "backtest.html"
    arguments = ("evaluate", folder / "series.csv", "--horizon", 2, "--draws", 50, "--report", report)
    answer = answer_of(*arguments, "--from", folder / "series.wishflow")
    assert set(answer["scores"]) == {"wishflow", "VAR(3)", "random walk"} and answer["origins"] == 5
    y = pd.read_csv(folder / "series.csv", index_col=0, parse_dates=True)
    model = wf.load(folder / "series.wishflow")
    expected = wf.backtest(model, y, fh=2, initial=70, n_draws=50)
    assert answer["scores"]["wishflow"]["crps"] == pytest.approx(float(expected["crps"].mean()))
    assert "Models compared by horizon" in report.read_text(encoding="utf-8")


def test_a_backtest_says_how_far_it_is(folder, capsys):
    y = pd.read_csv(folder / "series.csv", index_col=0, parse_dates=True)
    wf.backtest(wf.load(folder / "series.wishflow"), y, fh=5, initial=70, n_draws=10, verbose=1)
    assert "backtest 2/2" in capsys.readouterr().err


def test_the_var_is_that_of_statsmodels(folder):
    var = pytest.importorskip("statsmodels.tsa.api", reason="statsmodels is in the extra compare").VAR
    y = pd.read_csv(folder / "series.csv", index_col=0, parse_dates=True)
    exogenous = harmonics(y.index, ("day",))
    expected = var(y.to_numpy(), exog=exogenous).fit(2, trend="c")
    found = VectorAutoregression(2, ("day",)).fit(y)
    np.testing.assert_allclose(found.constant_, expected.params[0], rtol=1e-6)
    np.testing.assert_allclose(found.coefficients_.reshape(4, 2), expected.params[-4:], rtol=1e-6)
    np.testing.assert_allclose(found.root_ @ found.root_.T, expected.sigma_u, rtol=1e-6)


def test_info_of_a_model_file(folder):
    found = answer_of_info(folder / "series.wishflow")
    assert found["class"] == "WishartForecaster" and found["series"] == ["p", "q"] and found["freq"] == "h"
    found = answer_of_info(folder / "classes.wishflow")
    assert found["inputs"] == ["a", "b"] and found["targets"] == ["kind"] and found["classes"] == ["high", "low"]
    assert "kind" in run("info", folder / "classes.wishflow").stdout


def answer_of_info(path):
    return json.loads(run("info", path, "--json").stdout)
