"""Series on the command line: panels, covariates and scenarios are those of the forecaster; checks come before fits."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import wishflow as wf
from wishflow.cli.commands import app
from wishflow.cli.rivals import EachSeries, RandomWalk, VectorAutoregression

N, KNOWN = 70, 76
SMALL = {"n_inducing": 5, "max_iter": 2, "rank": 1, "n_train_samples": 1, "validation_fraction": 0}
STAMPS = pd.date_range("2024-01-01", periods=KNOWN, freq="h", name="date")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer_of(*arguments):
    """The JSON answer of a command that succeeds."""
    result = run(*arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def simulated(seed):
    """Two series that a covariate moves."""
    rng = np.random.default_rng(seed)
    price, level = rng.normal(size=KNOWN), np.zeros((KNOWN, 2))
    for t in range(1, KNOWN):
        level[t] = 0.8 * level[t - 1] - price[t] + rng.normal(size=2) @ [[0.3, 0.2], [0.0, 0.2]]
    return pd.DataFrame({"load": level[:, 0], "flow": level[:, 1], "price": price}, STAMPS)


@pytest.fixture(scope="module")
def panel():
    return pd.concat({"north": simulated(0), "south": simulated(1)}, names=["station", "date"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, panel):
    """A panel with future rows of its covariate, the same in two files, models of it, and a scenario."""
    folder = tmp_path_factory.mktemp("series")
    is_past = panel.index.get_level_values("date") < STAMPS[N]
    seen = panel.where(np.column_stack([is_past, is_past, np.ones_like(is_past)]))
    # In a long file, stations alternate, and ids need not be the first column.
    seen.swaplevel().sort_index(kind="stable").reset_index().to_csv(folder / "panel.csv", index=False)
    panel[is_past].reset_index().to_csv(folder / "past.csv", index=False)
    panel.loc[~is_past, ["price"]].reset_index().to_csv(folder / "future.csv", index=False)
    panel.reset_index().to_csv(folder / "whole.csv", index=False)
    seen.loc["north"].reset_index().to_csv(folder / "north.csv", index=False)
    given = pd.DataFrame({"date": STAMPS[N + 1 : N + 2], "load": [4.0]})
    given.to_csv(folder / "scenario.csv", index=False)
    given.assign(station="south").to_csv(folder / "south.csv", index=False)
    y, X = panel.loc[is_past, ["load", "flow"]], panel[["price"]]
    wf.WishartForecaster(**SMALL).fit(y, X).save(folder / "panel.wishflow")
    wf.WishartForecaster(**SMALL).fit(y.loc["north"], X.loc["north"]).save(folder / "north.wishflow")
    wf.WishartForecaster(**SMALL).fit(y.loc["north"].iloc[:60]).save(folder / "plain.wishflow")
    return folder


def expected_means(found, columns=("load", "flow")):
    return np.concatenate([forecast.mean[list(columns)].to_numpy() for forecast in found.values()])


COLUMNS = ("--time", "date", "--id", "station", "--covariates", "price")


def test_a_panel_with_covariates_is_that_of_the_forecaster(folder, panel):
    """Fitted by the command: a long file whose last rows hold covariates alone, ids in front of the stamps."""
    out = folder / "fitted.csv"
    ends = ("--horizon", "6h", "-o", out, "--save", folder / "fitted.wishflow", "--max-iter", 2, "--draws", 50)
    answer = answer_of("forecast", folder / "panel.csv", *COLUMNS, *ends)
    assert answer["ids"] == ["north", "south"] and answer["series"] == ["load", "flow"] and answer["steps"] == 6
    found = pd.read_csv(out, parse_dates=["date"])
    assert list(found.columns[:3]) == ["station", "date", "load_mean"]
    assert list(found["station"]) == ["north"] * 6 + ["south"] * 6 and list(found["date"]) == 2 * list(STAMPS[N:])
    model = wf.load(folder / "fitted.wishflow")
    assert model.end_ == STAMPS[N - 1] and list(model.units_.x_columns) == ["price"]
    forecasts = model.forecast(6, panel[["price"]], n_draws=50)
    np.testing.assert_allclose(found[["load_mean", "flow_mean"]], expected_means(forecasts), rtol=1e-9)


def test_future_covariates_may_be_in_a_file_of_their_own(folder):
    """A saved model knows its columns; rows without series and a second file say the same."""
    ends = ("--from", folder / "panel.wishflow", "--horizon", 6, "--draws", 50, "--quiet")
    one = run("forecast", folder / "panel.csv", *ends)
    two = run("forecast", folder / "past.csv", "--future", folder / "future.csv", *ends)
    alone = run("forecast", "--future", folder / "future.csv", *ends)
    assert one.exit_code == 0 and one.stdout.startswith("station,date,load_mean")
    assert one.stdout == two.stdout == alone.stdout


def test_another_future_is_another_scenario(folder, panel):
    dear = pd.read_csv(folder / "future.csv").assign(price=5.0)
    dear.to_csv(folder / "dear.csv", index=False)
    out = folder / "dear_out.csv"
    ends = ("--from", folder / "panel.wishflow", "--horizon", 6, "--draws", 50, "-o", out)
    answer_of("forecast", folder / "panel.csv", "--future", folder / "dear.csv", *ends)
    X = panel[["price"]].copy()
    X[X.index.get_level_values(1) >= STAMPS[N]] = 5.0
    found = wf.load(folder / "panel.wishflow").forecast(6, X, n_draws=50)
    np.testing.assert_allclose(pd.read_csv(out)[["load_mean", "flow_mean"]], expected_means(found), rtol=1e-9)


@pytest.mark.parametrize(("file", "ids"), [("scenario.csv", ["north", "south"]), ("south.csv", ["south"])])
def test_scenarios_are_those_of_the_forecaster(folder, panel, file, ids):
    """One scenario for all series of a panel, or one for some of them."""
    out = folder / "scenario_out.csv"
    ends = ("--from", folder / "panel.wishflow", "--horizon", 6, "--draws", 50, "-o", out)
    answer_of("forecast", folder / "panel.csv", "--given", folder / file, *ends)
    given = pd.DataFrame({"load": [4.0]}, STAMPS[N + 1 : N + 2])
    model = wf.load(folder / "panel.wishflow")
    forecasts = model.forecast(6, panel[["price"]], n_draws=50, given=dict.fromkeys(ids, given))
    found = pd.read_csv(out)
    np.testing.assert_allclose(found[["load_mean", "flow_mean"]], expected_means(forecasts), rtol=1e-9)
    rows = found[found["date"] == str(STAMPS[N + 1])].set_index("station")
    assert [key for key, sd in rows["load_sd"].items() if sd == 0.0] == ids and (rows.loc[ids, "load_q95"] == 4.0).all()


def test_a_panel_is_scored_beside_rivals_that_know_its_covariates(folder, panel):
    report = folder / "panel.html"
    ends = ("--horizon", 2, "--draws", 50, "--from", folder / "panel.wishflow", "--report", report)
    answer = answer_of("evaluate", folder / "whole.csv", *ends)
    y, X = panel[["load", "flow"]], panel[["price"]]
    rolled = {"fh": 2, "initial": N, "n_draws": 50}
    ours = wf.backtest(wf.load(folder / "panel.wishflow"), y, X, **rolled)
    assert answer["origins"] == 6 and set(answer["scores"]) == {"wishflow", "VAR(3)", "random walk"}
    assert answer["scores"]["wishflow"]["crps"] == pytest.approx(float(ours["crps"].mean()))
    # A VAR of one station, fitted by hand, is that of the panel; and the price, which moves the series, helps it.
    alone = wf.backtest(VectorAutoregression(3), y.loc["south"], X.loc["south"], **rolled)
    both = wf.backtest(EachSeries(VectorAutoregression(3)), y, X, **rolled)
    np.testing.assert_allclose(both["crps"].sel(series="south"), alone["crps"])
    blind = wf.backtest(EachSeries(VectorAutoregression(3)), y, **rolled)
    assert both["crps"].mean() < 0.7 * blind["crps"].mean()
    assert answer["scores"]["VAR(3)"]["crps"] == pytest.approx(float(both["crps"].mean()))
    assert "Models compared by horizon" in report.read_text(encoding="utf-8")


def test_a_series_that_begins_late_has_the_parameters_of_the_others(panel):
    y = panel[["load", "flow"]]
    late = pd.concat({"north": y.loc["north"], "south": y.loc["south"].iloc[N + 1 :]})
    for rival in (VectorAutoregression(3), RandomWalk()):
        scores = wf.backtest(EachSeries(rival), late, fh=1, initial=N, n_draws=20)
        assert np.isfinite(scores["crps"].sel(series="south").isel(origin=-1)).all()
        assert scores["crps"].sel(series="south").notnull().any(("horizon", "variable")).sum() == KNOWN - N - 2


def test_info_names_ids_and_covariates(folder):
    found = answer_of("info", folder / "panel.wishflow")
    assert found["ids"] == ["north", "south"] and found["covariates"] == ["price"]


# --- mistakes --------------------------------------------------------------------------------


@pytest.fixture
def no_fit(monkeypatch):
    """Mistakes are found before the fit."""

    def never(*_, **__):
        raise AssertionError("a model was fitted")

    monkeypatch.setattr("wishflow.series.forecaster.WishartForecaster.fit", never)


MISTAKES = {
    "forecast panel.csv --id statoin --horizon 3": "--id 'statoin' is not a column",
    "forecast panel.csv --id station --covariates price,temp --horizon 3": "--covariates 'temp' is not a column",
    "forecast panel.csv --id station --covariates price --series price --horizon 3": "by --covariates and by --series",
    "forecast panel.csv --id station --covariates price --horizon 9": "the covariates of 'north' end at 2024-01-04",
    "forecast past.csv --id station --covariates price --horizon 3": "name a file of them with --future",
    "forecast panel.csv --horizon 3": "or name it by --id",
    "forecast past.csv --id station --horizon 3 --future future.csv": "--future given without --covariates",
    "forecast panel.csv --id station --covariates price --horizon 1 --given scenario.csv": "no stamp of this forecast",
    "forecast panel.csv --id station --covariates price --horizon 3 --given future.csv": "gives values of 'price'",
    "forecast panel.csv --id station --covariates price --horizon 3 --report r.html": "the data are a panel",
    "forecast north.csv --from panel.wishflow --horizon 3": "--id 'station' is not a column",
    "forecast north.csv --from north.wishflow --id station --horizon 3": "fitted to one series; leave --id out",
    "forecast north.csv --from plain.wishflow --covariates price --horizon 3": "fitted without; leave --covariates out",
    "forecast north.csv --from north.wishflow --series load --horizon 3": "to 'load', 'flow'; leave --series out",
    "forecast --from north.wishflow --horizon 3": "the model has the covariates 'price'",
    "evaluate zoned.csv --from plain.wishflow --horizon 3": "the stamps of the file have the zone UTC",
    "evaluate numbered.csv --time hour --from plain.wishflow --horizon 3": "the stamps of the file have type int64",
    "evaluate lacking.csv --from plain.wishflow --horizon 3": "the model's series 'flow' is not a column of",
    "evaluate past.csv --target load --horizon 3": "--target is for rows and --horizon is for series",
    "evaluate past.csv --target load --id station": "--id is for series, but there is no --horizon",
    "evaluate holed.csv --covariates price --horizon 3": "the covariate 'price' is empty at 2024-01-01 07:00:00",
}


@pytest.mark.parametrize(("command", "said"), MISTAKES.items())
def test_mistakes_are_found_before_the_fit(folder, no_fit, monkeypatch, command, said):
    """With `--from` by `evaluate` as by `forecast`."""
    monkeypatch.chdir(folder)
    north = pd.read_csv("north.csv").dropna()
    north.assign(date=north["date"] + "+00:00").to_csv("zoned.csv", index=False)
    north.drop(columns="date").assign(hour=range(len(north))).to_csv("numbered.csv", index=False)
    north.drop(columns="flow").to_csv("lacking.csv", index=False)
    north.assign(price=north["price"].where(north.index != 7)).to_csv("holed.csv", index=False)
    result = run(*command.split())
    assert result.exit_code in (1, 2), result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert len(errors) == 1 and said in errors[0], result.stderr
    wanted = {1: wf.errors.DataError, 2: wf.errors.OptionError}[result.exit_code]
    assert isinstance(run(*command.split(), "--debug").exception, wanted)
