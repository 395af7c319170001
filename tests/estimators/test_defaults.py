"""What `WishartForecaster` decides by itself: options, what is kept of training, and how wide bands are."""

import dataclasses
import pickle

import jax
import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.numerics.devices import computing, on_device
from wishflow.series import candidates, defaults
from wishflow.series.autoregressive import Start, build
from wishflow.series.batches import masked_batch, series_batch
from wishflow.series.choosing import bands_of
from wishflow.series.data.frames import read
from wishflow.series.layout import Layout
from wishflow.series.objectives import negative_transition_objective
from wishflow.series.specs import DynamicsSpec
from wishflow.series.trials import Trial, choose
from wishflow.series.windows import Transitions

QUICK = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2}
N = 600
LONG = [pytest.mark.slow, pytest.mark.long]


def hourly(n=N, seed=0):
    """Two series with a daily cycle, a second lag and holes."""
    rng = np.random.default_rng(seed)
    index = pd.date_range("2021-03-01", periods=n, freq="h", tz="Europe/Berlin")
    rows = np.zeros((n, 2))
    for t in range(2, n):
        rows[t] = 0.6 * rows[t - 1] + 0.25 * rows[t - 2] + rng.normal(size=2) @ [[0.5, 0.4], [0.0, 0.3]]
    rows += 2.0 * np.sin(2 * np.pi * np.arange(n) / 24)[:, None]
    frame = pd.DataFrame(10.0 + rows, index, ["a", "b"])
    return frame.mask(rng.uniform(size=frame.shape) < 0.02)


@pytest.fixture(scope="module")
def y():
    return hourly()


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WishartForecaster(**QUICK).fit(y.iloc[:500])


def test_attributes_hold_what_was_chosen_and_the_summary_says_why(fitted):
    assert "day" in fitted.calendar_ and 2 in fitted.lags_
    assert fitted.transform_ is None and fitted.white_noise_ == "constant"
    assert (fitted.rank_, fitted.n_inducing_, fitted.max_iter_) == (2, 8, 20)
    assert fitted.status_.count("kept:") == 1
    table = fitted.validation_history_
    assert table["candidate"][0] == "linear, constant noise" and table["kept"].sum() == 1
    said = fitted.summary()
    for words in ("lags", "rolled CRPS", "given", "recalibrated", "coverage 80%", str(table["candidate"][0])):
        assert words in said


def test_a_file_and_a_pickle_hold_the_choice_and_forecast_the_same(fitted, y, tmp_path):
    fitted.save(tmp_path / "model.wishflow")
    for again in (wf.load(tmp_path / "model.wishflow"), pickle.loads(pickle.dumps(fitted))):
        assert again.summary() == fitted.summary()
        one, two = (m.forecast(30, n_draws=20) for m in (again, fitted))
        np.testing.assert_array_equal(one.samples, two.samples)
        pd.testing.assert_series_equal(one.log_prob(y), two.log_prob(y))
        assert again.lags_ == fitted.lags_ and again.transform_ == fitted.transform_


@pytest.mark.slow
def test_update_goes_on_with_the_choice(fitted, y):
    model = pickle.loads(pickle.dumps(fitted)).update(y.iloc[500:560], update_params=True)
    assert model.end_ == y.index[559]
    assert "update" in model.status_
    assert np.isfinite(model.forecast(3, n_draws=10).samples).all()


def test_recalibrated_densities_are_those_of_the_recalibrated_draws(fitted):
    """The mixture of densities in the middle, beside that of a normal law with the moments of the draws."""
    assert fitted.calibration_ is not None
    found = fitted.forecast(6, n_draws=4000)
    centre = found.samples.values[:, 5].mean(0)
    moments = np.exp(found.log_prob(np.vstack([np.full((5, 2), np.nan), centre]), kind="moments").iloc[5])
    mixture = np.exp(found.log_prob(np.vstack([np.full((5, 2), np.nan), centre])).iloc[5])
    assert mixture == pytest.approx(moments, rel=0.25)


@pytest.mark.slow
def test_bands_without_recalibration_are_those_of_the_model(y):
    options = {**QUICK, "lags": 2, "calendar": False, "transform": None}
    with_, without = (wf.WishartForecaster(**options, calibrate=c).fit(y.iloc[:500]) for c in ("auto", None))
    assert without.calibration_ is None and with_.calibration_ is not None
    one, two = (m.forecast(4, n_draws=50).samples.values for m in (with_, without))
    np.testing.assert_allclose(one.mean(0), two.mean(0))
    scale = with_.calibration_.at(np.arange(1.0, 5.0))
    np.testing.assert_allclose((one - one.mean(0)), (two - two.mean(0)) * scale, atol=1e-8)


@pytest.mark.slow
def test_options_that_are_given_are_not_chosen(y):
    given = {**QUICK, "lags": (1, 4), "calendar": True, "transform": "log", "white_noise": "state"}
    model = wf.WishartForecaster(**given).fit(y)
    assert model.lags_ == (1, 4) and model.transform_ == "log" and model.white_noise_ == "state"
    assert model.calendar_ == ("day", "week")
    assert set(model.reasons_) == {"prior"}


@pytest.mark.parametrize(
    ("options", "n", "why"),
    [
        ({"drift": "gp"}, 40, "too few"),
        ({"diffusion": "diagonal"}, 40, "too few"),
        ({"objective": "rollout"}, 200, "rollouts"),
        ({"latent_dim": 1}, 200, "latent"),
        ({"step": 0.5}, 200, "step"),
    ],
)
def test_without_rows_to_choose_by_options_are_plain(options, n, why):
    model = wf.WishartForecaster(**options)
    panel = read(hourly(n), "y")
    fraction = model.validation_fraction
    (found,) = defaults.settings_of(model.get_params(deep=False), panel, None, fraction)
    assert (found.lags, found.calendar, found.transform, found.rank) == (1, False, None, 10)
    assert (found.white_noise, found.n_inducing, found.max_iter, found.is_validated) == ("constant", 100, None, False)
    assert all(why in reason for reason in found.reasons.values()) and len(found.reasons) == 7


@pytest.mark.parametrize("n", [3, 12, 40])
def test_few_rows_keep_the_linear_model_that_the_evidence_chooses(n, tmp_path):
    y = hourly(n).bfill().ffill()
    model = wf.WishartForecaster().fit(y)
    assert (model.spec_.drift, model.n_iter_, len(model.history_)) == ("linear", 0, 0)
    assert model.status_.startswith("not trained") and model.status_.count("kept:") == 1
    assert all(words in model.summary() for words in ("evidence", model.status_))
    model.save(tmp_path / "model.wishflow")
    one, two = (found.forecast(5, n_draws=20).samples.values for found in (model, wf.load(tmp_path / "model.wishflow")))
    assert np.isfinite(one).all() and np.array_equal(one, two)
    assert model.update(hourly(n + 2).bfill().ffill().iloc[n:]).end_ == hourly(n + 2).index[-1]


def test_without_any_origin_the_linear_model_is_kept_and_nothing_is_compared():
    """Gaps cut the last rows into stretches that are shorter than the lags."""
    index = [pd.date_range(start, periods=n) for start, n in (("2020-01-01", 30), ("2020-06-01", 3), ("2020-09-01", 3))]
    y = pd.DataFrame(np.random.default_rng(0).normal(size=(36, 1)), index[0].append(index[1]).append(index[2]), ["a"])
    model = wf.WishartForecaster(lags=4).fit(y)
    assert model.status_.startswith("not trained: 0 origins") and model.validation_history_ is None
    assert model.spec_.drift == "linear" and "0 origins" in model.summary()


@pytest.mark.parametrize(
    ("n", "members"), [(190, 1), *(pytest.param(*sizes, marks=LONG) for sizes in ((60, 1), (100, 2)))]
)
def test_without_origins_to_prefer_it_by_nothing_is_trained_and_forecasts_are_the_same(n, members, y, monkeypatch):
    """What is trained could not be kept: a linear model of all rows stays."""
    options = {"max_iter": 10, "n_inducing": 8, "n_train_samples": 2, "n_members": members}
    models = [wf.WishartForecaster(**options).fit(y.iloc[:n])]
    monkeypatch.setattr(candidates.Shared, "is_worth_training", True)
    models.append(wf.WishartForecaster(**options).fit(y.iloc[:n]))
    assert models[0].n_iter_ == 0 < models[1].n_iter_
    one, two = (model.forecast(8, n_draws=50) for model in models)
    np.testing.assert_array_equal(one.samples, two.samples)
    pd.testing.assert_series_equal(one.log_prob(y), two.log_prob(y))
    assert models[0].lags_ == models[1].lags_ and models[0].spec_ == models[1].spec_


def test_enough_origins_are_worth_training(y):
    assert wf.WishartForecaster(**QUICK).fit(y.iloc[:210]).n_iter_ > 0


@pytest.mark.parametrize(("unit", "offset"), [(1e-13, 0.0), (1e-8, 1.0), (1.0, 1e6), (1e8, -1e15), (1e20, 0.0)])
def test_forecasts_follow_unit_and_offset(unit, offset, y):
    rows = y.iloc[:100] - 10.0
    expected, found = (
        wf.WishartForecaster().fit(one).forecast(8, n_draws=50).samples.values for one in (rows, unit * rows + offset)
    )
    np.testing.assert_allclose((found - offset) / unit, expected, atol=1e-5)


def test_rows_without_values_and_covariates_do_not_turn_the_choice_off():
    """A row that is not there, or has neither a value nor covariates: a hole in the grid, as of series without X."""
    y, model = hourly(200), wf.WishartForecaster()
    X = pd.DataFrame({"u": np.arange(200) % 5.0}, y.index)
    gone = y.index[[50, 120]]
    empty, unknown = y.copy(), X.copy()
    empty.loc[gone], unknown.loc[gone] = np.nan, np.nan
    found = []
    for rows, known in ((y.drop(gone), X.drop(gone)), (empty, X.drop(gone)), (empty, unknown)):
        given = model.get_params(deep=False), read(rows, "y"), read(known, "X"), 0.1
        found.append(defaults.settings_of(*given))
        assert all(one.is_validated for one in found[-1])
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_such_rows_are_trained_on_with_lags():
    y = hourly(100)
    X, gone = pd.DataFrame({"u": np.arange(110) % 5.0}, pd.date_range(y.index[0], periods=110, freq="h")), y.index[[50]]
    model = wf.WishartForecaster(lags=2, **QUICK).fit(y.drop(gone), X.drop(gone))
    assert model.validation_history_ is not None
    assert np.isfinite(model.forecast(3, X, n_draws=5).samples).all()


def test_a_choice_that_cannot_be_made_is_said():
    """Gaps of a little less than a unit are regular one by one, but a thousand of them are half a step short."""
    rng = np.random.default_rng(0)
    stamps = np.cumsum(np.where(np.arange(2000) % 2, 1.0, 1.0 - 9e-4))
    y = pd.DataFrame(rng.normal(size=(2000, 1)).cumsum(axis=0), stamps, ["a"])
    y = y.drop(y.index[[10, 500]])
    X = pd.DataFrame({"u": rng.normal(size=2000)}, stamps)
    model = wf.WishartForecaster(**{**QUICK, "max_iter": 2})
    with pytest.warns(UserWarning, match="no rows could be held back.* regular grid"):
        model.fit(y, X)


def test_no_rows_held_back_is_the_plain_forecaster(y):
    plain = {"lags": 1, "calendar": False, "transform": None, "white_noise": "constant", **QUICK}
    one, two = (wf.WishartForecaster(**o, validation_fraction=0).fit(y.iloc[:100]) for o in (plain, QUICK))
    np.testing.assert_array_equal(one.forecast(3, n_draws=5).samples, two.forecast(3, n_draws=5).samples)
    assert one.calibration_ is None and one.validation_history_ is None


@pytest.mark.slow
def test_irregular_stamps_take_plain_options(y):
    model = wf.WishartForecaster(**QUICK).fit(y.iloc[np.flatnonzero(np.random.default_rng(0).uniform(size=N) < 0.3)])
    assert model.lags_ == (1,) and model.calendar_ == () and model.validation_history_ is None


@pytest.mark.parametrize(
    "option", [{"calibrate": "yes"}, {"validation_fraction": 1.0}, {"lags": "many"}, {"rank": "all"}]
)
def test_options_that_are_none_are_refused(y, option, types_unchecked):
    with pytest.raises(OptionError, match=next(iter(option))):
        wf.WishartForecaster(**option).fit(y)


@pytest.mark.slow
def test_panels_with_covariates_are_chosen_for_together(y):
    X = pd.DataFrame({"u": np.arange(N) % 5.0}, y.index)
    model = wf.WishartForecaster(**QUICK).fit({"one": y.iloc[:300], "two": y.iloc[300:590]}, {"one": X, "two": X})
    assert "day" in model.calendar_
    found = model.forecast(3, {"one": X, "two": X}, n_draws=10)
    # A series that ends early has covariates at its own steps.
    assert found["one"].samples.shape == (10, 3, 2)


# --- what is kept ------------------------------------------------------------------------------------


def trial(name, factors, n=40, damping=1.0):
    rng = np.random.default_rng(7)
    crps = 1.0 + 0.05 * rng.uniform(size=(n, 24, 2))
    for band, factor in zip(bands_of(24), factors, strict=True):
        crps[:, band] *= factor
    return Trial(name, crps, np.ones_like(crps), damping)


@pytest.mark.parametrize(
    ("candidates", "kept"),
    [
        ([(0.9, 0.9, 0.9)], 1),
        ([(0.5, 0.5, 1.01)], 0),  # it loses at one band
        ([(0.5, 0.5, 1.01), (0.99, 0.99, 0.99)], 2),
        ([(1.0, 1.0, 1.0)], 0),
        ([(0.99, 0.98, 0.99), (0.97, 0.97, 0.98)], 2),
    ],
)
def test_a_candidate_that_loses_at_a_band_of_horizons_is_not_kept(candidates, kept):
    trials = [trial("linear", (1.0, 1.0, 1.0), damping=None), *(trial(f"{c}", c) for c in candidates)]
    assert choose(trials) is trials[kept]


@pytest.mark.parametrize(("gain", "kept"), [(0.1, 1), (-0.1, 0), (None, 1)])
def test_a_candidate_with_a_lower_density_is_not_kept(gain, kept):
    """However good its forecasts are; where no densities are known the CRPS decides."""
    trials = [trial("linear", (1.0, 1.0, 1.0), damping=None), trial("best", (0.9, 0.9, 0.9))]
    if gain is not None:
        rows = np.random.default_rng(3).normal(size=(2, 300))
        densities = (rows[0], rows[0] + gain * (1.0 + rows[1]))
        trials = [dataclasses.replace(one, densities=d) for one, d in zip(trials, densities, strict=True)]
    assert choose(trials) is trials[kept]


def test_noise_that_does_not_change_is_the_covariance_that_it_starts_from():
    covariance = np.array([[1.0, 0.6], [0.6, 0.5]])
    layout = Layout(2, (1,), 0)
    with computing():
        start = Start(*(on_device(x) for x in (-0.1 * np.eye(2), np.zeros(2), covariance)))
        spec = DynamicsSpec(drift="linear", diffusion=wf.diffusions.Constant())
        model = build(spec, layout, start, np.zeros((1, 2)), jax.random.key(0))
        here = model.field.in_parts().at(on_device(np.random.default_rng(0).normal(size=(3, 2))))
        np.testing.assert_allclose(here.mean_covariance(), np.tile(covariance, (3, 1, 1)), rtol=1e-6)
        F = here.factor(jax.random.key(1))
        np.testing.assert_allclose(
            F @ F.transpose(0, 2, 1) + here.white[:, :, None] * np.eye(2), here.mean_covariance()
        )


def test_steps_that_are_not_used_do_not_count():
    rng = np.random.default_rng(0)
    steps = Transitions(rng.normal(size=(50, 2)), rng.normal(size=(50, 2)), np.ones(50), np.arange(50))
    is_used = np.arange(50) < 30
    part = Transitions(steps.X[:30], steps.increment[:30], steps.h[:30], steps.row[:30])
    with computing():
        start = Start(*(on_device(x) for x in (np.zeros((2, 2)), np.zeros(2), np.eye(2))))
        spec = DynamicsSpec(drift="linear", diffusion=wf.diffusions.Constant())
        model = build(spec, Layout(2, (1,), 0), start, np.zeros((1, 2)), jax.random.key(0))
        bounds = [
            negative_transition_objective(model, batch, jax.random.key(1))[0]
            for batch in (masked_batch(steps, is_used), series_batch(part, None))
        ]
    np.testing.assert_allclose(*bounds)


@pytest.mark.slow
def test_of_a_chaotic_series_the_gp_drift_is_kept():
    """Its next steps are no linear function of the last rows, however many."""
    rng = np.random.default_rng(0)
    x, rows = np.array([1.0, 1.0, 25.0]), []
    for _ in range(900):
        for _ in range(50):
            slope = [10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]]
            x = x + 0.001 * np.array(slope) + 0.01 * rng.normal(size=3)
        rows.append(x)
    chaotic = wf.WishartForecaster().fit(pd.DataFrame(np.array(rows)))
    assert "GP" in chaotic.status_.split("kept:")[1].split("(")[0]
    table = chaotic.validation_history_.set_index("candidate").filter(like="crps")
    kept = chaotic.validation_history_["kept"].to_numpy()
    assert (table[kept].to_numpy() < 0.9 * table.iloc[0].to_numpy()).all()


@pytest.mark.parametrize(
    ("n_rows", "dim", "expected"), [(500, 3, 200), (2000, 3, 200), (5000, 3, 500), (17_520, 26, 800), (8760, 51, 200)]
)
def test_iterations_follow_the_number_of_rows(n_rows, dim, expected):
    assert defaults._iterations(n_rows, dim) == expected
