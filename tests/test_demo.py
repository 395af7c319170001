"""The demonstration: scores against other routes to the same numbers, the bar, the figures, the printed lines."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import matplotlib.pyplot
import numpy as np
import pytest
import scipy.stats
from rich.console import Console

import wishflow as wf
from wishflow import metrics
from wishflow.callbacks import ChunkEvent
from wishflow.cli import demo, demo_figures, side_by_side
from wishflow.cli.side_by_side import LEVELS
from wishflow.cli.terminal import Terminal

NAMES = ["SGP", "No noise", "diffGP", "diffWGP"]


class KnownNormal:
    """A stand-in for a model: every y is N(mean, std²), whatever x; `fit` reports two chunks of steps."""

    def __init__(self, mean=0.0, std=1.0, n_steps=4):
        self.mean, self.std, self.n_steps, self.callbacks = mean, std, n_steps, None

    def set_params(self, callbacks):
        self.callbacks = callbacks
        return self

    def fit(self, X, y):
        self.width = y.shape[1:]
        for step in (self.n_steps // 2, self.n_steps):
            records = {"objective": np.full(2, -10.0), "noise": np.full(2, 0.5)}
            for callback in self.callbacks or []:
                callback.on_chunk(ChunkEvent("flow", step, self.n_steps, records, 1.0))
        for callback in self.callbacks or []:
            callback.on_end()
        return self

    def predict(self, X):
        return np.full((len(X), *self.width), self.mean)

    def predict_quantiles(self, X, alpha):
        quantiles = scipy.stats.norm(self.mean, self.std).ppf(alpha)
        return np.broadcast_to(quantiles, (len(X), *self.width, len(quantiles)))

    def log_prob(self, X, y):
        return scipy.stats.norm(self.mean, self.std).logpdf(y).reshape(len(X), -1).sum(1)

    def sample_y(self, X, n_samples=1, random_state=0):
        return np.random.default_rng(random_state).normal(self.mean, self.std, (len(X), *self.width, n_samples))

    def flow_paths(self, X, random_state=0):
        return np.stack([X, X + 0.1, X + 0.2])

    def mean_covariance(self, X):
        return np.tile(0.1 * np.eye(2), (len(X), 1, 1))


@pytest.fixture(scope="module")
def law():
    return wf.datasets.make_heteroskedastic_2d(200, n_outputs=2, random_state=0)


def split_of(y):
    return side_by_side.Split("some", np.zeros((len(y), 2)), y, np.zeros((len(y), 2)), y)


# --- scores ----------------------------------------------------------------------------------


def test_crps_from_quantiles_is_the_closed_form_of_a_normal():
    y = np.random.default_rng(0).normal(0.5, 2.0, 4000)
    quantiles = np.broadcast_to(scipy.stats.norm(1.0, 1.5).ppf(LEVELS[2:]), (len(y), len(LEVELS) - 2))
    exact = metrics.crps_gaussian(y, np.full_like(y, 1.0), np.full_like(y, 1.5)).mean()
    assert side_by_side.crps_quantiles(y, quantiles).mean() == pytest.approx(exact, rel=1e-3)


def test_scores_of_a_normal_law_on_its_own_draws_are_known():
    """Joint over two outputs: log density −1 − log 2πσ², RMSE σ, CRPS σ/√π, coverage 90 %."""
    std, n = 0.7, 20_000
    y = np.random.default_rng(1).normal(2.0, std, (n, 2))
    scores = side_by_side.score_model("law", KnownNormal(2.0, std).fit(None, y), split_of(y))
    expected = -1.0 - np.log(2.0 * np.pi * std**2)
    assert abs(scores.log_density - expected) < 4.0 * scores.standard_error
    assert scores.standard_error == pytest.approx(1.0 / np.sqrt(n), rel=0.05)
    assert scores.rmse == pytest.approx(std, rel=0.02)
    assert scores.crps == pytest.approx(std / np.sqrt(np.pi), rel=0.02)
    assert scores.coverage == pytest.approx(0.9, abs=0.01)


def test_the_true_law_scores_better_than_a_wrong_one_and_covers(law):
    test = wf.datasets.make_heteroskedastic_2d(400, n_outputs=2, random_state=5)
    data = side_by_side.Split("simulated", law.X, law.y, test.X, test.y)
    truth = side_by_side.score_law("truth", law, data, n_draws=400, seed=0)
    marginal = KnownNormal(0.0, float(law.y.std())).fit(law.X, law.y)
    wrong = side_by_side.score_model("marginal", marginal, data)
    assert truth.log_density > wrong.log_density + 1.0
    assert truth.crps < 0.5 * wrong.crps
    assert truth.coverage == pytest.approx(0.9, abs=0.03)


def test_fits_are_timed_and_leave_no_callback_behind():
    y = np.zeros((10, 1))
    names = []
    for name, model, scores in side_by_side.fit_and_score(
        {"a": KnownNormal(), "b": KnownNormal()}, split_of(y), lambda name: names.append(name) or []
    ):
        assert scores.name == name and scores.seconds >= 0.0 and model.callbacks is None
    assert names == ["a", "b"]


def test_the_four_models_are_those_of_the_paper():
    models = side_by_side.models(n_inducing=7, max_iter=9, n_steps=3)
    assert list(models) == NAMES
    assert isinstance(models["SGP"], wf.SparseGPRegressor)
    assert [models[name].diffusion for name in NAMES[1:]] == ["none", "gp", "wishart"]
    assert {model.n_inducing for model in models.values()} == {7}
    assert {models[name].n_steps for name in NAMES[1:]} == {3}


# --- the bar ---------------------------------------------------------------------------------


def test_one_bar_runs_through_all_fits():
    """Each of two fits is half of the bar, whatever its own number of steps; time goes on between them."""
    seen = []
    bar = demo.DemoBar(n_fits=2, n_steps=100)
    bar.bar = SimpleNamespace(n_points=None, on_chunk=seen.append, on_end=lambda: seen.append("end"))
    for n_steps in (10, 40):
        KnownNormal(n_steps=n_steps).set_params(bar.next_fit("model", n_points=5)).fit(None, np.zeros((5, 1)))
    bar.close()
    assert seen.pop() == "end"
    assert [event.step for event in seen] == [50, 100, 150, 200]
    assert {event.n_steps for event in seen} == {200}
    assert [event.phase for event in seen] == ["model (1 of 2)"] * 2 + ["model (2 of 2)"] * 2
    assert np.all(np.diff([event.seconds for event in seen]) >= 0.0)


def test_the_bar_shows_step_objective_noise_and_time_left():
    text = io.StringIO()
    bar = demo.DemoBar(n_fits=2, n_steps=100, console=Console(file=text, force_terminal=True, width=120))
    for title in ("SGP", "diffGP"):
        KnownNormal().set_params(bar.next_fit(title, n_points=5)).fit(None, np.zeros((5, 1)))
    bar.close()
    for part in ("diffGP (2 of 2)", "200/200", "objective -2/point", "noise 0.5", "left"):
        assert part in text.getvalue()


def test_the_warm_start_of_a_flow_does_not_move_the_bar():
    seen = []
    bar = demo.DemoBar(n_fits=1, n_steps=100)
    bar.bar = SimpleNamespace(n_points=None, on_chunk=seen.append, on_end=lambda: None)
    bar.next_fit("diffGP", n_points=5)
    for phase, step, n_steps in (("output", 20, 20), ("flow", 30, 60)):
        bar.on_chunk(ChunkEvent(phase, step, n_steps, {}, 0.0))
    assert [event.step for event in seen] == [0, 50]


# --- figures ---------------------------------------------------------------------------------


def test_true_paths_have_the_drift_and_the_covariance_of_the_law(law):
    """After one small step from one point: mean μ dt, covariance Σ dt."""
    start, n = np.array([0.7, 0.4]), 40_000
    dt = 1.0 / 50
    paths = demo_figures.true_paths(law, np.tile(start, (n, 1)), 50, np.random.default_rng(0))
    step = paths[1] - paths[0]
    np.testing.assert_allclose(paths[0], np.tile(start, (n, 1)))
    error = 4.0 * np.sqrt(np.diagonal(law.covariance(start)) * dt / n)
    assert np.all(np.abs(step.mean(0) - law.drift(start) * dt) < error)
    np.testing.assert_allclose(np.cov(step.T), law.covariance(start) * dt, atol=2e-4)


def test_the_covariance_of_draws_is_that_of_numpy():
    draws = np.random.default_rng(0).normal(size=(3, 2, 50))
    np.testing.assert_allclose(demo_figures.draws_covariance(draws), [np.cov(row) for row in draws])


def test_figures_have_a_panel_for_each_model_and_say_what_may_be_compared(law):
    fitted = {name: KnownNormal().fit(law.X, law.y) for name in NAMES}
    bands = demo_figures.band_figure(law, fitted, n_points=16, n_draws=4)
    assert [ax.get_title() for ax in bands.axes] == NAMES + [""] * 4
    flows = demo_figures.flow_figure(law, {name: fitted[name] for name in NAMES[1:]}, n_side=2)
    assert [ax.get_title() for ax in flows.axes] == ["truth", *NAMES[1:]]
    covariances = demo_figures.covariance_figure(law, {"diffWGP": fitted["diffWGP"]}, n_side=2, n_draws=8)
    assert [ax.get_title().split(":")[0] for ax in covariances.axes] == ["truth", "diffWGP"] * 2
    assert "fair comparison" in covariances.get_supxlabel().replace("\n", " ")


# --- the whole -------------------------------------------------------------------------------


def assert_weather_table(printed: str) -> None:
    """A row for each of the three forecasters: CRPS in three bands, energy score, coverage, seconds."""
    table = printed[printed.index("Weather at three New York airports") :].splitlines()
    headings, *rows = [[cell.strip() for cell in line[1:-1].split(line[0])] for line in table if line[:1] in ("┃", "│")]
    assert headings == ["model", "CRPS 1 h", "CRPS 2–6 h", "CRPS 7–24 h", "energy", "80 % cover", "seconds"]
    assert [name for name, *_ in rows] == ["random walk", "VAR(3)", "wishflow"]
    for _, *scores, coverage, seconds in rows:
        assert len(scores) == 4 and all(0.0 < float(score) < np.inf for score in scores)
        assert 0.0 < float(coverage.removesuffix(" %")) <= 100.0
        assert float(seconds) >= 0.0


@pytest.mark.slow
def test_the_demonstration_prints_tables_paths_and_code(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("COLUMNS", "120")  # headings on one line
    monkeypatch.setattr(demo, "models", lambda *sizes, **options: {name: KnownNormal() for name in NAMES})
    demo.main(Terminal(), tmp_path / "figures", quick=True)
    printed = capsys.readouterr().out
    assert all(printed.count(f"│ {name} ") == 2 for name in NAMES)
    assert printed.count("│ truth ") == 1
    names = ["bands.png", "flow.png", "covariance.png"]
    if not demo.missing_packages():
        assert_weather_table(printed)
        names += ["weather.png", "correlation.png"]
    else:
        assert "Time series were left out" in printed
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(names)
    for name in names:
        path = (tmp_path / "figures" / name).resolve()
        assert path.stat().st_size > 10_000
        assert str(path) in printed
    assert demo.snippet(demo.QUICK) in printed


@pytest.mark.slow
def test_the_demonstration_answers_in_json(monkeypatch, tmp_path, capsys):
    """One object with the scores of all models; with --quiet nothing else is printed."""
    monkeypatch.setattr(demo, "models", lambda *sizes, **options: {name: KnownNormal() for name in NAMES})
    monkeypatch.setattr(demo, "missing_packages", lambda: ["statsmodels"])
    demo.main(Terminal(quiet=True, as_json=True), tmp_path, quick=True)
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert [row["name"] for row in answer["simulated"]] == ["truth", *NAMES] and len(answer["figures"]) == 3
    assert not printed.err


def test_the_printed_code_names_every_option_of_the_fit():
    size = demo.Size(options=(("n_train_samples", 4), ("columns", "independent")))
    assert f"n_inducing={size.n_inducing}, max_iter={size.max_iter}, n_train_samples=4, columns='independent')" in (
        demo.snippet(size)
    )


@pytest.mark.slow
def test_the_demonstration_and_its_code_run_for_real(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "backend", "agg")
    demo.main(Terminal(), tmp_path, quick=True)
    printed = capsys.readouterr().out
    assert "nan" not in printed
    exec(compile(demo.snippet(demo.QUICK), "snippet", "exec"), {})
    matplotlib.pyplot.close("all")
