"""`lags` of the forecaster: a number, chosen ones, a season that is found again, and what is refused."""

import copy

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.series import gaussian_filter as filtering
from wishflow.series.data.frames import read
from wishflow.series.data.intake import further_rows
from wishflow.series.running import autoregressive
from wishflow.specs import checks

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}
LINEAR = {"drift": "linear", "diffusion": "diagonal", "n_inducing": 4, "validation_fraction": 0}
CHOSEN = (1, 2, 24)
A = np.array([[0.5, 0.2], [0.0, 0.4]])
B = np.array([[0.35, 0.0], [-0.1, 0.4]])


def _admitted(model, frame):
    return further_rows(model.units_, read(frame, "y"), None)[None][0]


def seasonal(n=3000, seed=0):
    """x_t = A x_{t−1} + B x_{t−24} + noise, as a frame of hours."""
    rng = np.random.default_rng(seed)
    x = np.zeros((n + 200, 2))
    for t in range(24, len(x)):
        x[t] = A @ x[t - 1] + B @ x[t - 24] + rng.normal(size=2) * [0.5, 0.3]
    stamps = pd.date_range("2021-01-01", periods=n, freq="h")
    return pd.DataFrame(x[200:], index=stamps, columns=["a", "b"])


@pytest.fixture(scope="module")
def y():
    frame = seasonal(220).mask(np.random.default_rng(1).uniform(size=(220, 2)) < 0.03)
    frame.iloc[80:83] = np.nan
    return frame


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WishartForecaster(lags=CHOSEN, **SMALL).fit(y.iloc[:150])


def coefficients(model):
    """The matrices of the lags in units of the data, (D, lags, D); that of lag 1 with the state a step leaves from."""
    scale = model.units_.y_scaler.scale
    weights = np.asarray(model.model_.field.linear.weights).reshape(2, -1, 2)
    weights[:, 0] += np.eye(2)
    return weights * scale[:, None, None] / scale


# --- forms -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["transition", "rollout"])
def test_all_lags_by_name_are_those_by_number(y, objective):
    """Bit for bit, with holes: training, scores, covariances, forecasts, updates."""
    one, two = (wf.WishartForecaster(lags=p, objective=objective, **SMALL).fit(y.iloc[:150]) for p in (3, (1, 2, 3)))
    assert one.spec_ == two.spec_
    for model in (one, two):
        model.update(y.iloc[150:152])
    pd.testing.assert_frame_equal(one.history_.drop(columns="seconds"), two.history_.drop(columns="seconds"))
    np.testing.assert_array_equal(one.forecast(5, n_draws=10).samples, two.forecast(5, n_draws=10).samples)
    pd.testing.assert_series_equal(one.log_prob(y), two.log_prob(y))
    np.testing.assert_array_equal(one.covariance(y), two.covariance(y))


@pytest.mark.parametrize("value", [[1, 2, 24], (1, 2, 24), np.array([1, 2, 24])], ids=["list", "tuple", "array"])
def test_chosen_lags_in_all_their_forms(value):
    assert checks.lags(value) == CHOSEN
    assert clone(wf.WishartForecaster(lags=list(value))).lags == list(CHOSEN)


def test_a_run_of_lags_is_its_length():
    assert checks.lags(range(1, 7)) == checks.lags((1, 2, 3, 4, 5, 6)) == 6
    assert checks.lags([1]) == checks.lags(np.int64(1)) == 1


@pytest.mark.parametrize(
    "value, words",
    [
        (0, "lags=0 given"),
        (-3, "lags=-3 given"),
        (2.0, "lags=2.0 given"),
        (True, "lags=True given"),
        ("3", "lags='3' given"),
        ((), r"lags=\(\) given"),
        ((0, 1), "0 is no lag"),
        ((1, -2), "-2 is no lag"),
        ((1, 2.5), "2.5 is no lag"),
        ((1, 2, 2, 24), "2 is there twice"),
        ((1, 24, 3), "3 comes after 24"),
        ((2, 24), "which is lag 1"),
    ],
    ids=str,
)
def test_lags_that_are_none_are_named(y, value, words):
    with pytest.raises(OptionError, match=words) as caught:
        wf.WishartForecaster(lags=value, **SMALL).fit(y)
    assert "such as (1, 2, 3, 24)" in str(caught.value)


def test_what_long_lags_need(y):
    with pytest.raises(DataError, match="needs at least 26"):
        wf.WishartForecaster(lags=CHOSEN, **SMALL).fit(y.iloc[:20])
    irregular = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, size=len(y)))
    with pytest.raises(DataError, match="regular grid"):
        wf.WishartForecaster(lags=CHOSEN, **SMALL).fit(y.set_axis(irregular))
    with pytest.raises(OptionError, match="carries the memory"):
        wf.WishartForecaster(lags=CHOSEN, latent_dim=1, **SMALL).fit(y)


# --- a season --------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["nothing", pytest.param("rows", marks=pytest.mark.slow)])
def test_a_season_is_found_again(missing):
    """A and B of a VAR with the lags 1 and 24; lag 2, which it lacks, gets nothing."""
    y = seasonal()
    if missing == "rows":  # single ones, a night, and the same hour of two days that follow each other
        y.iloc[np.random.default_rng(2).choice(3000, 150, replace=False)] = np.nan
        y.iloc[[*range(500, 508), *range(900, 903), *range(924, 927)]] = np.nan
    model = wf.WishartForecaster(lags=CHOSEN, max_iter=300, **LINEAR).fit(y)
    found = coefficients(model)
    np.testing.assert_allclose(found[:, 0], A, atol=0.06)
    np.testing.assert_allclose(found[:, 1], 0.0, atol=0.06)
    np.testing.assert_allclose(found[:, 2], B, atol=0.06)
    rate = model.covariance(y.iloc[-30:]).values[-1]
    np.testing.assert_allclose(np.sqrt(np.diagonal(rate)), [0.5, 0.3], rtol=0.1)


def test_forecasts_follow_the_recursion_of_the_lags():
    """Means of a linear model over two days, from complete rows: noise has no say in them."""
    y = seasonal(400)
    model = wf.WishartForecaster(lags=CHOSEN, max_iter=5, **LINEAR).fit(y)
    field, scaler = model.model_.field, model.units_.y_scaler
    z = list(scaler.forward(y.to_numpy()))
    for _ in range(48):
        seen = np.concatenate([z[-lag] for lag in CHOSEN])
        z.append(z[-1] + np.asarray(field.linear.weights) @ seen + np.asarray(field.linear.constant))
    found = model.forecast(48, n_draws=4000).samples.values
    error = found.std(axis=0) / np.sqrt(4000)
    assert (np.abs(found.mean(axis=0) - scaler.inverse(np.stack(z[-48:]))) < 5 * error).all()


# --- holes, updates, files -------------------------------------------------------------------------


@pytest.mark.slow
def test_scores_of_new_rows_do_not_see_what_comes_later(y):
    """Rows after a hole within the memory are scored by the past alone: later rows change nothing."""
    model = wf.WishartForecaster(lags=CHOSEN, max_iter=5, **LINEAR).fit(y.iloc[:150])
    new = y.iloc[150:].copy()
    new.iloc[10:13, 0] = np.nan
    whole, start = model.log_prob(new), model.log_prob(new.iloc[:30])
    assert np.isfinite(whole[new.notna().any(axis=1)]).all()
    np.testing.assert_allclose(whole.iloc[:30], start, rtol=1e-10)


@pytest.mark.slow
def test_an_update_is_conditioning_on_all_rows(fitted, y):
    by_steps = copy.copy(fitted).update(y.iloc[150:170]).update(y.iloc[170:])
    at_once = copy.copy(fitted).update(y.iloc[150:])
    one, two = (model.forecast(30, n_draws=20) for model in (by_steps, at_once))
    np.testing.assert_allclose(one.samples, two.samples, rtol=1e-10)
    trained = copy.copy(fitted).update(y.iloc[150:], update_params=True)
    assert trained.n_iter_ > fitted.n_iter_ and np.isfinite(trained.forecast(30, n_draws=5).samples).all()


def test_rows_that_forecasts_start_from_reach_back_beyond_the_lags():
    model = wf.WishartForecaster(lags=(1, 168), **{**LINEAR, "max_iter": 2}).fit(seasonal(400))
    assert len(model.tails_[None].index) == 168 + 48


@pytest.mark.slow
@pytest.mark.parametrize("joint_size, n_inducing", [(filtering.JOINT_SIZE, 4), (6, 5)])
def test_a_forecast_from_holes_carries_their_spread(joint_size, n_inducing, monkeypatch):
    """A day ago a row is missing: the hour that looks back at it has more spread, also beyond the joint rows."""
    monkeypatch.setattr(filtering, "JOINT_SIZE", joint_size)  # models of other sizes: programs of their own
    y = seasonal(600)
    model = wf.WishartForecaster(lags=(1, 24), max_iter=5, **{**LINEAR, "n_inducing": n_inducing}).fit(y)
    holed = y.copy()
    holed.iloc[-20] = np.nan

    def spread(rows):
        again = copy.copy(model)  # an update would not forget what is known
        again.tails_ = {None: model.units_.last_rows(_admitted(model, rows))}
        return again.forecast(24, n_draws=8000).samples.std("draw").values

    ratio = spread(holed) / spread(y)
    np.testing.assert_allclose(ratio[:4], 1.0, atol=0.02)
    assert (ratio[4] > 1.02).all()  # lag 24 looks back at the hole at hour 5
    belief = autoregressive.last_belief(model.model_, model.units_.ticks(_admitted(model, holed))[-1])
    assert (belief.older is None) == (joint_size > 6)


@pytest.mark.slow
def test_a_file_gives_back_chosen_lags(fitted, y, tmp_path):
    fitted.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    assert again.spec_ == fitted.spec_ and again.spec_.lags == CHOSEN and tuple(again.lags) == CHOSEN
    np.testing.assert_array_equal(again.forecast(30, n_draws=10).samples, fitted.forecast(30, n_draws=10).samples)
    pd.testing.assert_series_equal(again.log_prob(y), fitted.log_prob(y))
    again.update(y.iloc[150:])
    assert np.isfinite(again.forecast(30, n_draws=10).samples).all()
