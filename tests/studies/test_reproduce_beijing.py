"""The Beijing comparison: its protocol on small frames, what is run and skipped, tables by other routes, the page."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
import xarray as xr
from rich.console import Console
from scipy.stats import norm
from typer.testing import CliRunner

from studies import paths, processes, report
from studies.beijing import figures, jobs, pages, protocol, published, reproduce, tables
from studies.beijing.__main__ import main as command
from studies.beijing.jobs import Job
from studies.beijing.models import MODELS, POLLUTANTS, Standardised, transform_by_kind
from studies.beijing.protocol import BANDS, HORIZON
from studies.beijing.results import SCORES, job_path, missing_cells, read_result, read_results, result_path
from studies.benchmarks.tables import forecasting
from studies.progress import SuiteProgress
from wishflow import datasets, metrics
from wishflow.callbacks import ChunkEvent
from wishflow.cli.rivals import RandomWalk
from wishflow.errors import DatasetError, OptionError
from wishflow.files.json import write_json_atomic
from wishflow.series.forecast import Forecast
from wishflow.series.forecaster import WishartForecaster
from wishflow.wishart.specs import Wishart

COLUMNS = ["Shunyi TEMP", "Tiantan TEMP", "Dongsi PM2.5"]
N_TRAIN, N_WINDOWS, N_AFTER = 200, 3, 2
N_TEST = N_WINDOWS * HORIZON + 10
N_CELLS = 24
SOURCE = {"command": "python -m studies.beijing", "commit": "0" * 40, "device": "none", "versions": {"jax": "0"}}
# Small enough for a few seconds; everything else is as in the comparison.
SMALL = (("max_iter", 2), ("n_inducing", 5), ("batch_size", 32), ("rank", 2), ("lags", 1))


# --- the protocol on a small frame -----------------------------------------------------------


def made_frame() -> pd.DataFrame:
    """Three correlated walks around a daily wave; hours 205 and 250 of one column were not measured."""
    rng = np.random.default_rng(0)
    n = N_TRAIN + N_TEST + N_AFTER * HORIZON + 5
    shared = 0.3 * rng.normal(size=(n, 1)) + 0.3 * rng.normal(size=(n, 3))
    walk = np.zeros((n, 3))
    for t in range(1, n):
        walk[t] = 0.9 * walk[t - 1] + shared[t]
    wave = np.sin(2 * np.pi * np.arange(n) / 24)[:, None]
    index = pd.date_range("2015-01-01", periods=n, freq="h", tz="Asia/Shanghai", name="time")
    frame = pd.DataFrame(40.0 + 5.0 * (walk + wave), index=index, columns=COLUMNS)
    frame.iloc[[205, 250], 2] = np.nan
    return frame


@pytest.fixture
def small(monkeypatch):
    """The data are the small frame; "test" and "validation" start at its row 200 and 150, two windows follow "test"."""
    frame = made_frame()
    cuts = {"train": (0, N_TRAIN), "test": (N_TRAIN, N_TRAIN + N_TEST), "fit": (0, 150), "validation": (150, N_TRAIN)}
    cuts |= {"fit_year": (0, 90), "validation_year": (90, N_TRAIN)}
    periods = {name: slice(frame.index[a], frame.index[b - 1]) for name, (a, b) in cuts.items()}
    monkeypatch.setattr(
        protocol, "load_beijing", lambda interpolate=False: frame.interpolate() if interpolate else frame
    )
    monkeypatch.setattr(protocol, "beijing_periods", lambda: periods)
    return frame


@pytest.fixture
def parts(small):
    return protocol.load_parts()


def test_units_are_those_of_the_training_part_alone(parts, small):
    np.testing.assert_allclose(parts.train.mean(), 0.0, atol=1e-12)
    np.testing.assert_allclose(parts.train.std(ddof=0), 1.0)
    back = parts.mean + parts.sd * parts.rest
    np.testing.assert_allclose(back.to_numpy(), small.interpolate().iloc[N_TRAIN : -len(parts.after.rest)])
    assert parts.n_windows == N_WINDOWS
    assert (~parts.is_observed).sum().tolist() == [0, 0, 2]
    assert len(parts.first_window) == HORIZON and parts.first_window.index[0] == small.index[N_TRAIN]


def test_validation_reads_nothing_of_the_test_part(small):
    parts = protocol.load_parts(is_validation=True)
    assert (len(parts.train), len(parts.rest)) == (150, 50)
    assert parts.rest.index[-1] < small.index[N_TRAIN]
    np.testing.assert_allclose(parts.train.mean(), 0.0, atol=1e-12)
    year = protocol.load_validation_year()
    assert (len(year.train), len(year.rest)) == (90, 110) and year.is_validation
    assert year.rest.index[-1] < small.index[N_TRAIN]


def test_what_was_scored_is_the_past_of_what_comes_after_it(parts, small):
    after = parts.after
    pd.testing.assert_index_equal(after.train.index.append(after.rest.index), small.index, exact="equiv")
    pd.testing.assert_frame_equal(after.train, pd.concat([parts.train, parts.rest]))
    np.testing.assert_allclose(after.mean + after.sd * after.rest, small.iloc[N_TRAIN + N_TEST :])
    assert after.n_windows == N_AFTER and after.is_observed.shape == after.rest.shape
    assert protocol.load_parts(is_validation=True).after is protocol.load_validation_year().after is None


def test_the_months_after_are_forecast_from_all_rows_before_them(parts):
    """By hand: a walk that was updated with every row before the window; the forecaster itself stays where it was."""
    walk = RandomWalk().fit(parts.train)
    found = jobs._make("after", walk, parts, Job("walk", n_draws=60))
    assert walk.end_ == parts.train.index[-1]
    expected = []
    for window in range(N_AFTER):
        past = pd.concat([parts.rest, parts.after.rest.iloc[: window * HORIZON]])
        samples = RandomWalk().fit(parts.train).update(past).forecast(HORIZON, n_draws=60).samples.values
        observed = parts.after.rest.iloc[window * HORIZON : (window + 1) * HORIZON].to_numpy()
        expected.append(metrics.crps_samples(observed, samples).mean(axis=1)[0])
    np.testing.assert_allclose(found["windows"]["crps"]["1"], expected)


def test_holes_are_the_same_every_time(parts):
    holed = protocol.with_holes(parts.train, 0.2)
    pd.testing.assert_frame_equal(holed, protocol.with_holes(parts.train, 0.2))
    assert holed.isna().to_numpy().mean() == pytest.approx(0.2, abs=0.05)
    pd.testing.assert_frame_equal(protocol.with_holes(parts.train, 0.0), parts.train)


def made_scores(n_windows: int = 5, seed: int = 0) -> xr.Dataset:
    rng = np.random.default_rng(seed)
    cell, hour = ("origin", "horizon", "variable"), ("origin", "horizon")
    shape = (n_windows, HORIZON, 3)
    return xr.Dataset(
        {
            "crps": (cell, rng.uniform(size=shape)),
            "covered": (cell, (rng.uniform(size=shape) < 0.8).astype(float)),
            "energy": (hour, rng.uniform(1, 2, size=shape[:2])),
            "log_density": (hour, rng.normal(size=shape[:2])),
        }
    )


def test_summary_by_plain_loops():
    scores, is_observed = made_scores(), np.random.default_rng(1).uniform(size=(5, HORIZON, 3)) < 0.7
    is_observed[0] = True  # every hour of every series is measured at least once
    found = protocol.summary(scores, is_observed)
    crps, energy = scores["crps"].values, scores["energy"].values
    hours_of = {"1": [1], "2-6": range(2, 7), "7-24": range(7, 25), "25-48": range(25, 49)}
    for band, hours in hours_of.items():
        expected = [np.mean([crps[w, h - 1, d] for w in range(5) for d in range(3)]) for h in hours]
        assert found["bands"]["crps"][band] == pytest.approx(np.mean(expected))
        measured = [np.mean([crps[is_observed[:, h - 1, d], h - 1, d].mean() for d in range(3)]) for h in hours]
        assert found["bands"]["crps_observed"][band] == pytest.approx(np.mean(measured))
        assert found["bands"]["energy"][band] == pytest.approx(np.mean([energy[:, h - 1].mean() for h in hours]))
        by_window = [np.mean([energy[w, h - 1] for h in hours]) for w in range(5)]
        np.testing.assert_allclose(found["windows"]["energy"][band], by_window)
    assert found["log_density_1"] == pytest.approx(scores["log_density"].values[:, 0].mean())
    assert len(found["by_hour"]["coverage_80"]) == HORIZON
    assert "log_density_moments" not in found["by_hour"]


def test_every_hour_is_in_one_band():
    assert sorted(hour for part in BANDS.values() for hour in range(HORIZON)[part]) == list(range(HORIZON))


def test_windows_follow_each_other_and_start_from_what_came(parts):
    found = protocol.roll(RandomWalk().fit(parts.train), parts, n_draws=60)
    whole = pd.concat([parts.train, parts.rest])
    expected = []
    for window in range(N_WINDOWS):
        origin = N_TRAIN + window * HORIZON
        walk = (
            RandomWalk().fit(parts.train).update(whole.iloc[N_TRAIN:origin])
            if window
            else RandomWalk().fit(parts.train)
        )
        samples = walk.forecast(HORIZON, n_draws=60).samples.values
        expected.append(metrics.crps_samples(whole.iloc[origin : origin + HORIZON].to_numpy(), samples).mean(axis=1)[0])
    np.testing.assert_allclose(found["windows"]["crps"]["1"], expected)


def test_cells_that_were_not_measured_are_found_at_their_hours(parts):
    """Row 205 is hour 6 of the first window, row 250 hour 3 of the second: only there do the two scores differ."""
    found = protocol.roll(RandomWalk().fit(parts.train), parts, n_draws=60)["by_hour"]
    differ = ~np.isclose(found["crps"], found["crps_observed"], rtol=1e-12)
    assert np.flatnonzero(differ).tolist() == [2, 5]


# --- models and jobs -------------------------------------------------------------------------


class Member:
    """A stand-in for a fitted forecaster: N(level, 1) for each of two columns, at every hour."""

    transform_ = None

    def __init__(self, level: float, index: pd.Index) -> None:
        self.level, self.index, self.seen = level, index, 0

    def update(self, y, X=None):
        self.seen += len(y)

    def forecast(self, fh, X=None, n_draws=10, random_state=0):
        rng = np.random.default_rng(random_state)
        samples = self.level + rng.normal(size=(n_draws, fh, 2))

        def log_density(y):
            return -np.log(2 * np.pi) - 0.5 * np.sum((y - self.level) ** 2, axis=1)

        return Forecast(samples, self.index[:fh], pd.Index(["a", "b"]), log_density)


def test_standardised_forecasts_are_those_of_the_data_in_other_units():
    """Draws by (y − mean)/sd, densities by the Jacobian: N(level, 1) becomes N((level − mean)/sd, 1/sd²)."""
    index = pd.date_range("2016-01-01", periods=4, freq="h")
    mean, sd = pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([0.5, 4.0], ["a", "b"])
    member = Member(3.0, index)
    found = Standardised(member, mean, sd).forecast(4, n_draws=10, random_state=0)
    np.testing.assert_allclose(mean.to_numpy() + sd.to_numpy() * found.samples.values, member.forecast(4).samples)
    z = pd.DataFrame([[0.3, -0.2]] * 4, index, ["a", "b"])
    expected = norm.logpdf([0.3, -0.2], (3.0 - mean) / sd, 1.0 / sd).sum()
    np.testing.assert_allclose(found.log_prob(z), expected)


def test_draws_of_concentrations_are_cut_at_zero_and_their_densities_are_not():
    index = pd.date_range("2016-01-01", periods=4, freq="h")
    mean, sd = pd.Series([1.0, 2.0], ["a", "b"]), pd.Series([0.5, 4.0], ["a", "b"])
    member = Member(-3.0, index)
    member.transform_ = {"a": "sqrt", "b": None}
    found = Standardised(member, mean, sd).forecast(4, n_draws=10, random_state=0)
    draws = mean.to_numpy() + sd.to_numpy() * found.samples.values
    np.testing.assert_allclose(draws[..., 0], 0.0, atol=1e-12)
    np.testing.assert_allclose(draws[..., 1], member.forecast(4).samples[..., 1])
    below = pd.DataFrame([[-8.0, -1.25]] * 4, index, ["a", "b"])  # −3 in the units of the data
    expected = norm.logpdf([-8.0, -1.25], (-3.0 - mean) / sd, 1.0 / sd).sum()
    np.testing.assert_allclose(found.log_prob(below), expected)


def test_columns_are_transformed_by_kind():
    columns = ["Shunyi PM2.5", "Tiantan O3", "Shunyi TEMP", "Tiantan RAIN"]
    found = transform_by_kind({POLLUTANTS: "log1p", ("RAIN",): "sqrt"}, columns)
    assert found == {"Shunyi PM2.5": "log1p", "Tiantan O3": "log1p", "Tiantan RAIN": "sqrt"}


def test_jobs_make_the_figures_of_the_paper_and_the_scores():
    assert Job("wishart").cells == ("traces", "joint", "scores")
    assert Job("nodrift").cells == ("traces", "scores")
    assert Job("linear").cells == Job("wishart", missing=0.2).cells == ("scores",)
    assert Job("default").cells == Job("var3").cells == ("after", "scores")
    assert Job("default", is_validation=True).cells == Job("default", missing=0.2).cells == ("scores",)
    assert Job("wishart", missing=0.2).name == "wishart-missing"
    assert set(jobs.TRACED) | set(jobs.JOINED) <= set(MODELS)


@pytest.mark.parametrize(("model", "n_members"), [("default", 1), ("members", 4)])
def test_the_forecaster_without_options_has_none(parts, model, n_members):
    """Neither the plain values nor the transforms of the study: all of it is chosen in `fit`."""
    [job] = reproduce.asked_jobs([model])
    assert job.options(parts) == {"n_members": n_members}
    expected = WishartForecaster(n_members=n_members).get_params(deep=False)
    assert job.estimator(parts).get_params(deep=False) == expected
    assert job.settings("scores", parts)["options"]["lags"] == "auto"
    assert Job("wishart").options(parts)["validation_fraction"] == 0


def test_entries_are_deleted_for_our_models_alone():
    found = reproduce.asked_jobs(["var3", "wishart"], missing=0.2)
    assert [(job.name, job.missing) for job in found] == [("var3", 0.0), ("wishart-missing", 0.2)]


def test_settings_are_json_and_tell_jobs_apart(parts):
    job = Job("wishart")
    settings = job.settings("scores", parts)
    assert json.loads(json.dumps(settings)) == settings
    assert settings["options"]["rank"] == 15 and settings["n_windows"] == N_WINDOWS
    others = [{"n_draws": 10}, {"n_members": 2}, {"missing": 0.1}, {"changes": (("rank", 3),)}, {"model": "diagonal"}]
    others += [{"changes": (("diffusion", Wishart(rank=3, unit_rows=False)),)}]
    for change in others:
        assert dataclasses.replace(job, **change).settings("scores", parts) != settings
    assert dataclasses.replace(job, n_draws=10).settings("traces", parts) == job.settings("traces", parts)


def test_the_number_of_members_is_that_of_the_model_unless_one_is_given(parts):
    [job] = reproduce.asked_jobs(["ensemble"])
    assert job.options(parts)["n_members"] == job.settings("scores", parts)["n_members"] == 16
    [one], [three] = reproduce.asked_jobs(["wishart"]), reproduce.asked_jobs(["wishart"], n_members=3)
    assert (one.options(parts)["n_members"], three.options(parts)["n_members"]) == (1, 3)


@pytest.mark.parametrize(("n_draws", "n_members", "missing"), [(3, 2, 0.0), (100, 1, 1.0), (100, 1, -0.1)])
def test_impossible_settings_are_refused(n_draws, n_members, missing):
    with pytest.raises(OptionError, match="expected"):
        reproduce.asked_jobs(["wishart"], n_draws=n_draws, n_members=n_members, missing=missing)


@pytest.mark.slow
def test_our_model_from_fit_to_all_cells(parts, tmp_path):
    """Two iterations of the model with diagonal noise and two members: properties that hold whatever was learnt."""
    job = Job("diagonal", n_draws=20, n_members=2, changes=SMALL)
    traces, joint, scores = list(jobs.run(job, parts, job.cells))
    assert [result["cell"] for result in (traces, joint, scores)] == ["traces", "joint", "scores"]
    assert len(traces["mean"]) == len(traces["mixture"]) == HORIZON
    assert np.all(traces["mixture"] >= traces["mean"] - 1e-9)  # Jensen
    # Without J the density of the first hour is that of the member: no spread but that between the two.
    assert traces["standard_error"][0] < 0.2 * traces["standard_error"][5]
    assert np.all(np.isfinite(traces["mean"]))
    last = joint["hours"][-1]
    assert last["hour"] == 48 and np.shape(last["draws"]) == (2, 20)
    back = (np.array(last["observed"]) - parts.mean[COLUMNS[:2]]) / parts.sd[COLUMNS[:2]]
    np.testing.assert_allclose(back, parts.first_window[COLUMNS[:2]].iloc[47])
    assert len(scores["windows"]["log_density_1"]) == N_WINDOWS
    assert scores["log_density_1"] == pytest.approx(np.mean(scores["windows"]["log_density_1"]))
    assert scores["settings"] == job.settings("scores", parts)
    for result in (traces, joint, scores):
        write_json_atomic(tmp_path / "result.json", result)
        assert read_result(tmp_path / "result.json") is not None


@pytest.mark.slow
def test_the_forecaster_without_options_from_fit_to_all_cells(parts, tmp_path):
    """Fitted, kept in a file, loaded and rolled over both parts; the result says what was chosen."""
    job = Job("members", n_draws=20, n_members=2, changes=(("max_iter", 4), ("calibrate", None)))
    whole, _ = jobs.fit(job, parts, folder=tmp_path)
    after, scores = list(jobs.run(job, parts, job.cells, folder=tmp_path))
    assert (after["scored"], after["settings"]["n_windows"]) == ("after", N_AFTER)
    assert (scores["scored"], scores["settings"]["n_windows"]) == ("test", N_WINDOWS)
    assert tuple(scores["chosen"]["lags"]) == whole.forecaster.lags_ and sum(scores["chosen"]["weights"]) == 1.0
    assert np.isfinite(after["windows"]["log_density_1"]).all()
    for result in (after, scores):
        write_json_atomic(tmp_path / "result.json", result)
        assert read_result(tmp_path / "result.json") is not None


@pytest.mark.slow
def test_what_was_fitted_is_not_fitted_again(parts, tmp_path, monkeypatch):
    """A run that is stopped before its scores goes on from there, to the same forecasts; other settings start anew."""
    job = Job("diagonal", n_draws=20, n_members=2, changes=SMALL)
    whole, seconds = jobs.fit(job, parts, folder=tmp_path)
    trained = []
    real = jobs.wf.WishartForecaster.fit
    monkeypatch.setattr(jobs.wf.WishartForecaster, "fit", lambda self, *a: trained.append(self) or real(self, *a))
    again, total = jobs.fit(job, parts, folder=tmp_path)
    assert not trained and total == seconds
    np.testing.assert_array_equal(again.forecast(3, n_draws=8).samples, whole.forecast(3, n_draws=8).samples)
    assert jobs.objective_per_row(again, parts) == jobs.objective_per_row(whole, parts)
    for other in (dataclasses.replace(job, missing=0.2), dataclasses.replace(job, changes=(*SMALL, ("max_iter", 3)))):
        jobs.fit(other, parts, folder=tmp_path)
    assert len(trained) == 2


@pytest.mark.slow
def test_fits_and_jobs_side_by_side_are_the_same(parts, tmp_path, monkeypatch, capsys):
    """What processes share gives the files of one process; fits do not outlive their job; a failure harms no other."""
    monkeypatch.setattr(reproduce, "pool", ThreadPoolExecutor)
    asked = [
        Job("diagonal", n_draws=20, n_members=2, changes=SMALL),
        Job("walk", n_draws=20),
        Job("nodrift", n_draws=20, changes=(("rank", "many"),)),
    ]

    def run(name, n_processes):
        assert reproduce.run_jobs(tmp_path / name, asked, parts, n_processes) == 1
        assert "failed: OptionError" in capsys.readouterr().out
        assert not list((tmp_path / name / "fits").glob("diagonal*"))
        found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / name).glob("*.json")}
        return {key: {k: v for k, v in result.items() if k not in TIMES} for key, result in found.items()}

    alone = run("alone", 1)
    assert set(alone) == {"traces-diagonal", "joint-diagonal", "diagonal", "walk", "after-walk"}
    assert run("beside", 3) == alone


def test_jobs_on_a_backend_get_the_folder_from_its_root(tmp_path, monkeypatch, parts, capsys):
    made = []

    def completed(function, calls, backend, params):
        made.append((backend, params))
        yield from ((i, function(*call)) for i, call in enumerate(calls))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "completed", completed)
    monkeypatch.setattr(reproduce, "_run_alone", lambda folder, *_: reproduce.Outcome(False, f"made in {folder}"))
    asked = [Job("walk", n_draws=20)]
    assert reproduce.run_jobs(Path("here"), asked, parts, backend="ray") == 0
    assert made == [("ray", {"n_jobs": -1})] and f"made in {tmp_path / 'here'}" in capsys.readouterr().out


# --- which cells are run ---------------------------------------------------------------------


def made_result(cell: str, name: str) -> dict:
    """A result file as a finished cell writes it, with made-up numbers."""
    rng = np.random.default_rng([len(cell), *name.encode()])
    model = name.removesuffix("-missing")
    settings = {"n_windows": 5, "n_draws": 20, "options": {"rank": 15, "drift": "gp"}, "n_members": 1}
    settings |= {"rule": {"max_iter": 7}} if MODELS[model].is_ours else {}
    settings |= {"missing": 0.2} if name != model else {}
    result = {"cell": cell, "model": model, "name": name, "scored": "test", "settings": settings}
    result |= {"fit_seconds": 60.0, "total_seconds": 90.0, "provenance": SOURCE}
    if cell in ("scores", "after"):
        return result | protocol.summary(made_scores(seed=rng.integers(1000)), np.ones((5, HORIZON, 3), bool))
    if cell == "traces":
        numbers = {key: rng.uniform(size=HORIZON).tolist() for key in ("mean", "standard_error", "mixture")}
        return result | {"start": "2016-01-01"} | numbers
    hour = {"time": "2016-01-01", "draws": rng.normal(size=(2, 50)), "observed": [0.0, 0.0], "correlation": 0.5}
    return result | {"series": COLUMNS[:2], "hours": [{"hour": 1, **hour}, {"hour": 48, **hour}]}


TIMES = ("fit_seconds", "total_seconds", "provenance")
FROM_THE_RUN = ("settings", "scored", "fit_seconds", "total_seconds", "provenance")


@pytest.fixture
def runs(monkeypatch):
    """Cells that are made, none of them really; rolling of "diagonal" fails."""
    done = []

    def fit(job, parts, callbacks=None, folder=None):
        done.append((job.model, "fit"))
        return None, 60.0

    def make(cell, forecaster, parts, job):
        done.append((job.model, cell))
        if (job.model, cell) == ("diagonal", "scores"):
            raise MemoryError("too many draws at once")
        numbers = made_result(cell, job.name)
        return {key: value for key, value in numbers.items() if key not in FROM_THE_RUN}

    monkeypatch.setattr(jobs, "fit", fit)
    monkeypatch.setattr(jobs, "_make", make)
    monkeypatch.setattr(jobs, "objective_per_row", lambda forecaster, parts: 1.0)
    return done


def test_finished_cells_are_skipped_and_others_are_not(tmp_path, parts, runs, capsys):
    asked = [Job("wishart"), Job("walk")]
    assert reproduce.run_jobs(tmp_path, asked, parts) == 0
    once = [("wishart", "fit"), ("wishart", "traces"), ("wishart", "joint"), ("wishart", "scores")]
    once += [("walk", "fit"), ("walk", "after"), ("walk", "scores")]
    assert runs == once
    assert reproduce.run_jobs(tmp_path, asked, parts) == 0
    assert runs == once
    assert "5 of 5 cells are done already" in capsys.readouterr().out
    job_path(tmp_path, asked[0], "joint").unlink()
    reproduce.run_jobs(tmp_path, asked, parts)
    assert runs[len(once) :] == [("wishart", "fit"), ("wishart", "joint")]


@pytest.mark.parametrize("change", ["cut", "empty", "no JSON object", "a band less"])
def test_a_broken_file_is_no_result(tmp_path, parts, runs, change):
    job = Job("linear")
    reproduce.run_jobs(tmp_path, [job], parts)
    path = job_path(tmp_path, job, "scores")
    text, content = path.read_text(), json.loads(path.read_text())
    del content["bands"]["energy"]["2-6"]
    broken = {"cut": text[: len(text) // 2], "empty": "", "no JSON object": "[]"}
    path.write_text(broken.get(change, json.dumps(content)))
    assert read_result(path) is None
    reproduce.run_jobs(tmp_path, [job], parts)
    assert runs == [("linear", "fit"), ("linear", "scores")] * 2
    assert read_result(path) is not None


def test_other_settings_are_another_result(tmp_path, parts, runs):
    for job in (Job("linear"), Job("linear", n_draws=2000), Job("linear", is_validation=True)):
        reproduce.run_jobs(tmp_path, [job], parts)
    assert len(runs) == 6
    reproduce.run_jobs(tmp_path, [Job("linear", n_draws=10)], parts)
    assert len(runs) == 6  # more draws are there already
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linear.json", "validation-linear.json"]


def test_what_was_made_before_a_failure_stays_and_other_jobs_go_on(tmp_path, parts, runs, capsys):
    assert reproduce.run_jobs(tmp_path, [Job("diagonal"), Job("walk")], parts) == 1
    assert "failed: MemoryError: too many draws at once" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "after-walk.json",
        "joint-diagonal.json",
        "traces-diagonal.json",
        "walk.json",
    ]
    runs.clear()
    reproduce.run_jobs(tmp_path, [Job("diagonal")], parts)
    assert runs == [("diagonal", "fit"), ("diagonal", "scores")]


def test_the_bar_moves_with_fits_and_ends_with_the_rolling_comparison():
    """A job of one member is two units of work, the fit and the comparison; that of a rival one."""
    ours, rival = Job("wishart"), Job("walk")
    work = {job: float(job.n_fits) for job in (ours, rival)}
    shown = SuiteProgress(work, Console(file=io.StringIO(), force_terminal=True, width=200))
    shown.begin(ours)
    ticks = []
    for step in (5, 10):
        shown.on_chunk(ChunkEvent("series", step, 10, {"objective": np.array([-1.0])}, 1.0, 0, 1))
        ticks.append(shown.ticks)
    shown.on_end()
    shown.finish("done")
    ticks.append(shown.ticks)
    shown.begin(rival)
    shown.finish("done")
    shown.close()
    assert [*ticks, shown.ticks] == [166, 333, 666, 1000]


@pytest.mark.slow
def test_the_exit_code_tells_of_failures_and_the_page_is_written_all_the_same(tmp_path, small, runs, capsys):
    assert reproduce.main(tmp_path, models=["diagonal"]) == 1
    assert f"{N_CELLS - 2} cells are missing" in capsys.readouterr().out
    assert (tmp_path / "report" / "index.html").exists()
    assert reproduce.main(tmp_path, models=["walk"], is_validation=True) == 0
    assert re.search("CRPS.*energy score.*\n *random walk", capsys.readouterr().out)  # the table, side by side
    assert "Validation" in (tmp_path / "report-validation" / "index.html").read_text()


# --- tables ----------------------------------------------------------------------------------

ABSENT = [("scores", "rollout"), ("traces", "nodrift")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Results of everything but two cells, and one row with deleted entries."""
    folder = tmp_path_factory.mktemp("results")
    wanted = [(cell, model) for model in MODELS for cell in Job(model).cells if (cell, model) not in ABSENT]
    for cell, name in [*wanted, ("scores", "wishart-missing")]:
        write_json_atomic(result_path(folder, cell, name), made_result(cell, name))
    broken = made_result("scores", "linear")
    broken["bands"]["energy"]["7-24"] = np.nan
    write_json_atomic(result_path(folder, "scores", "linear"), broken)
    return folder


@pytest.fixture(scope="module")
def results(folder):
    return read_results(folder)


def test_the_table_holds_the_numbers_of_the_files(results):
    table = tables.score_table(results).set_index("model")
    bands = made_result("scores", "wishart")["bands"]
    row = table.loc["Wishart (diffWGP)"]
    assert row["CRPS"] == " / ".join(f"{bands['crps'][b]:.3f}" for b in ("1", "2-6", "7-24", "25-48"))
    assert row["80 % coverage"] == " / ".join(f"{v:.2f}" for v in bands["coverage_80"].values())
    assert float(row[tables.LOG_DENSITY]) == pytest.approx(made_result("scores", "wishart")["log_density_1"], abs=0.005)
    assert row[tables.SECONDS] == "60"
    assert "not finite" in table.loc["Wishart, linear drift", "energy score"]
    assert "Wishart (diffWGP), entries deleted (20 %)" in table.index


def test_what_is_missing_is_said_and_never_guessed(results):
    table = tables.score_table(results).set_index("model")
    assert (table.loc["Wishart, the paper's objective"].iloc[:-1] == "missing").all()
    assert missing_cells(results) == [("traces", "nodrift"), ("scores", "rollout")]
    short = tables.score_table(results, is_whole=False)
    assert len(short) == len(table) - 1
    frame = tables.score_frame(results).set_index(["model", "score", "hours"])
    assert np.isnan(frame.loc[("rollout", "crps", "1"), "value"])
    assert len(frame) == (len(MODELS) + 1) * (1 + len(SCORES) * len(BANDS))


def test_published_numbers_stand_below_the_rows_of_the_rivals(results):
    table = tables.score_table(results)
    names = list(table["model"])
    for label in ("random walk", "VAR(3) + harmonics", "VAR(24) + harmonics"):
        assert names[names.index(label) + 1] == f"{label}, published"
    row = table.set_index("model").loc["VAR(24) + harmonics, published"]
    assert (row["CRPS"], row[tables.LOG_DENSITY]) == (".119 / .220 / .317 / .380", "4.75")
    assert table.set_index("model").loc["random walk, published", "energy score"] == "–"
    assert published.printed_bands("energy", "var3") == [".866", "1.601", "2.077", "2.420"]


def test_differences_are_paired_by_window(results):
    row = tables.difference_table(results).set_index("model").loc["Wishart (diffWGP)"]
    first, second = (made_result("scores", name)["windows"]["crps"]["2-6"] for name in ("wishart", "var24"))
    d = [a - b for a, b in zip(first, second, strict=True)]
    mean = sum(d) / 5
    error = (sum((x - mean) ** 2 for x in d) / 4 / 5) ** 0.5
    assert row["CRPS, 2–6 h"] == f"{mean:+.3f} ± {error:.3f}"
    without = {key: value for key, value in results.items() if key != ("scores", "var24")}
    assert not len(tables.difference_table(without))


def test_the_months_after_have_their_own_table(results):
    table = tables.after_table(results).set_index("model")
    assert list(table.index) == [MODELS[name].label for name in jobs.AFTER]
    made = made_result("after", "var3")
    row, densities = table.loc["VAR(3) + harmonics"], made["windows"]["log_density_1"]
    assert float(row[tables.LOG_DENSITY]) == pytest.approx(np.mean(densities), abs=0.005)
    assert float(row["its median"]) == pytest.approx(sorted(densities)[2], abs=0.005)
    assert row["energy score"] == " / ".join(f"{made['bands']['energy'][b]:.3f}" for b in BANDS)


def test_settings_of_the_forecaster_without_options_are_those_it_chose():
    transform = {"Shunyi O3": "sqrt", "Tiantan O3": "sqrt", "Shunyi CO": "log1p", "Tiantan CO": None}
    chosen = {"lags": [1, 24], "calendar": ["day"], "transform": transform, "rank": 5, "n_inducing": 100}
    chosen |= {"white_noise": "state", "max_iter": 200, "status": "kept: the GP drift"}
    results = {("scores", "default"): {**made_result("scores", "default"), "chosen": chosen}}
    [line] = pages.setting_lines(results)
    assert line.startswith("WishartForecaster(): chosen `lags=[1, 24], calendar=['day'], transform=")
    assert "{'O3': 'sqrt', 'Shunyi CO': 'log1p'}, rank=5" in line
    assert line.endswith("1 member, 20 draws, 200 iterations; kept: the GP drift")


def test_documents_show_test_results_alone_or_say_that_there_are_none(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    folder = tmp_path / "beijing"
    folder.mkdir(parents=True)
    write_json_atomic(result_path(folder, "scores", "walk", is_validation=True), made_result("scores", "walk"))
    assert forecasting.beijing_table() == "Not measured yet."
    write_json_atomic(result_path(folder, "scores", "var3"), made_result("scores", "var3"))
    lines = forecasting.beijing_table().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| VAR(3) + harmonics", "| VAR(3) + harmonics, published"]


# --- figures and pages -----------------------------------------------------------------------


def test_contours_hold_the_shares_they_say():
    rng = np.random.default_rng(0)
    draws = np.array([[1.0, 0.0], [0.8, 0.6]]) @ rng.normal(size=(2, 2000))
    x, y, density, levels = figures.contours(draws)
    cell = (x[1] - x[0]) * (y[1] - y[0])
    assert density.sum() * cell == pytest.approx(1.0, abs=0.01)
    shares = [density[density >= level].sum() * cell for level in levels]
    np.testing.assert_allclose(shares, [0.9, 0.5], atol=0.04)


@pytest.fixture(scope="module")
def page(folder):
    return pages.write_outputs(folder)


def test_everything_a_reader_wants_is_written(page):
    names = {path.name for path in page.parent.iterdir()}
    images = {f"{name}.{kind}" for name in ("traces", "joint", "hours") for kind in ("png", "svg")}
    assert names == {"index.html", "scores.csv", "tables.md", *images}
    assert (page.parent / "joint.png").read_bytes().startswith(b"\x89PNG")


def test_files_hold_the_tables(page, results):
    read = pd.read_csv(page.parent / "scores.csv", dtype={"hours": str, "published": str}, keep_default_na=False)
    assert read["published"].tolist() == tables.score_frame(results)["published"].tolist()
    text, shown = page.read_text(), [tables.score_table(results), tables.difference_table(results)]
    assert all(report.markdown_table(table) in (page.parent / "tables.md").read_text() for table in shown)
    assert all(report.html_table(table) in text for table in shown)
    assert text.count("<img ") == 3
    assert f"2 of {N_CELLS} cells have no result yet" in text
    assert SOURCE["command"] in text and "share one weather station" in text


def test_the_page_needs_nothing_but_itself(page):
    text = page.read_text()
    assert "<script" not in text and "@import" not in text and "url(" not in text
    assert all(source.startswith("data:") for source in re.findall(r'(?:src|href)="([^"]*)"', text))
    assert not re.search(r"https?://", text)


def test_a_page_without_any_result_says_so(tmp_path):
    text = pages.write_outputs(tmp_path).read_text()
    assert f"{N_CELLS} of {N_CELLS} cells have no result yet" in text


def test_the_same_results_give_the_same_files(results):
    figure = [report.svg(figures.trace_figure(results)) for _ in range(2)]
    assert figure[0] == figure[1]
    assert pages.markdown(results) == pages.markdown(results)


# --- the command -----------------------------------------------------------------------------


def invoke(*arguments):
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def test_the_command_passes_its_options_on(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(reproduce, "main", lambda output, **options: calls.append((output, options)) or 3)
    given = ("--models", "walk,var3", "--draws", 50, "--members", 2, "--missing", 0.2, "--processes", 4)
    given += ("--backend", "ray", "--validation", "--report-only")
    assert invoke(*given, "--output", tmp_path).exit_code == 3
    expected = {"models": ["walk,var3"], "n_draws": 50, "n_members": 2, "missing": 0.2, "n_processes": 4}
    expected |= {"backend": "ray", "is_validation": True, "is_report_only": True}
    assert calls == [(tmp_path, expected)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--models", "var4"), ["models='var4'", *map(repr, MODELS)]),
        (("--draws", 3, "--members", 2), ["3 draws for 2 members", "--draws"]),
        (("--report-only",), ["there are no results", "run it first"]),
    ],
)
def test_the_command_says_what_came_and_what_is_allowed(tmp_path, arguments, words):
    result = invoke("--output", tmp_path / "none", *arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("arguments", [("--draws", 1), ("--members", 0), ("--missing", 1.5)])
def test_numbers_out_of_range_are_refused(arguments):
    assert invoke(*arguments).exit_code == 2


def test_without_data_the_command_says_what_to_do(monkeypatch, tmp_path):
    def absent(interpolate=False):
        raise DatasetError("Shunyi is not here; set WISHFLOW_DATA")

    monkeypatch.setattr(protocol, "load_beijing", absent)
    result = invoke("--output", tmp_path, "--models", "walk")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Shunyi is not here; set WISHFLOW_DATA")
    assert "Traceback" not in result.output


def test_from_the_command_to_the_page(tmp_path, monkeypatch):
    """Two windows of October 2015, twice: the second time nothing is run. Nothing of 2016 is scored."""
    try:
        datasets.load_beijing()
    except DatasetError as error:
        pytest.skip(f"the data are not here: {error}")
    monkeypatch.setattr(protocol, "N_TEST_WINDOWS", 2)
    arguments = ("--validation", "--models", "walk", "--draws", 60, "--output", tmp_path)
    first = invoke(*arguments)
    assert first.exit_code == 0, first.output
    result = read_results(tmp_path, is_validation=True)["scores", "walk"]
    assert (result["scored"], result["settings"]["n_windows"]) == ("validation", 2)
    assert result["bands"]["crps"]["1"] < result["bands"]["crps"]["25-48"]
    assert "1 of 1 cells are done already" in invoke(*arguments).output
