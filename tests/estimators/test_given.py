"""Forecasts given some of their cells: exact laws of linear Gaussian models, importance sampling elsewhere, frames."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from montecarlo import assert_moments
from scipy.stats import multivariate_normal, norm

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.series.running import runner_of, scenarios
from wishflow.series.running.mixture import MixedRunner

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}
LINEAR = {**SMALL, "drift": "linear", "diffusion": "constant", "max_iter": 5}
SLOW = pytest.mark.slow
N = 160
HOURS = pd.date_range("2024-03-01", periods=N + 24, freq="h")


def simulated(n=N, seed=0):
    """A stable VAR(1) of three series with correlated noise."""
    rng = np.random.default_rng(seed)
    mixing = np.array([[0.5, 0.0, 0.0], [0.4, 0.2, 0.0], [-0.2, 0.1, 0.4]])
    A = np.array([[0.9, 0.0, 0.0], [0.2, 0.7, 0.0], [0.0, -0.1, 0.8]])
    y = np.zeros((n, 3))
    for t in range(1, n):
        y[t] = A @ y[t - 1] + mixing @ rng.normal(size=3)
    return y


def frame(n=N, index=HOURS, **kwargs):
    return pd.DataFrame(10.0 + 3.0 * simulated(n, **kwargs), index=index[:n], columns=["a", "b", "c"])


# --- the exact law -------------------------------------------------------------------------------


def field_of(model):
    return jax.tree.map(jnp.asarray, model.model_).field


class JointNormal:
    """All rows after a complete history as one normal vector, in the units of y: by companion matrices, in NumPy."""

    def __init__(self, model, y, times, u):
        """`y` (R, D): rows from the first on, NaN where not observed; `times` in units; `u` (R, U) in model units."""
        field = field_of(model)
        lags, dim = model.lags_, y.shape[1]
        memory = max(lags)
        W, b = np.asarray(field.linear.weights), np.asarray(field.linear.constant)
        Q = np.asarray(field.in_parts().at(jnp.zeros((1, dim * len(lags) + u.shape[1]))).mean_covariance())[0]
        scaler = model.units_.y_scaler
        z = scaler.forward(y)
        size, n_rows = dim * memory, len(y)
        # x_t = m_t + B_t e for standard normal e: a row of B for each tick.
        means = [z[memory - 1 - i] for i in range(memory)]
        loads = [np.zeros((dim, 0)) for _ in range(memory)]
        assert not np.isnan(np.concatenate(means)).any() and size
        root = np.linalg.cholesky(Q)
        rows = []
        for t in range(memory, n_rows):
            gap = times[t] - times[t - 1]
            n_sub = max(math.ceil(gap / model.units_.step - 1e-9), 1)
            for _ in range(n_sub):
                h = gap / n_sub
                old = np.concatenate([means[lag - 1] for lag in lags])
                load = np.concatenate([loads[lag - 1] for lag in lags])
                n_lagged = dim * len(lags)
                mean = means[0] + h * (W[:, :n_lagged] @ old + W[:, n_lagged:] @ u[t] + b)
                new = np.concatenate([loads[0] + h * W[:, :n_lagged] @ load, np.sqrt(h) * root], axis=1)
                loads = [new] + [np.concatenate([x, np.zeros((dim, dim))], axis=1) for x in loads[:-1]]
                means = [mean, *means[:-1]]
            rows.append((mean, new))
        n_noise = rows[-1][1].shape[1]
        B = np.stack([np.concatenate([x, np.zeros((dim, n_noise - x.shape[1]))], axis=1) for _, x in rows])
        self.mean = scaler.inverse(np.stack([m for m, _ in rows])).ravel()
        B = (B * np.asarray(scaler.scale)[:, None]).reshape(-1, n_noise)
        self.covariance = B @ B.T
        self.y = y[memory:].ravel()

    def free(self, n_last):
        """Mean and covariance of the cells that are NaN in the last rows given all others, and where they are."""
        seen = ~np.isnan(self.y)
        o, f = np.flatnonzero(seen), np.flatnonzero(~seen)
        C = self.covariance
        gain = np.linalg.solve(C[np.ix_(o, o)], C[np.ix_(o, f)]).T if len(o) else np.zeros((len(f), 0))
        mean = self.mean[f] + gain @ (self.y[o] - self.mean[o])
        covariance = C[np.ix_(f, f)] - gain @ C[np.ix_(o, f)]
        is_last = f >= len(self.y) - n_last
        return mean[is_last], covariance[np.ix_(is_last, is_last)], f[is_last] - (len(self.y) - n_last)


def assert_exact(model, past, times, u, given, forecast):
    """Draws of the free cells have the moments of the exact law of the model."""
    rows = np.concatenate([past, given])
    mean, covariance, at = JointNormal(model, rows, times, u).free(given.size)
    draws = forecast.samples.values.reshape(len(forecast.samples), -1)
    assert_moments(draws[:, at], mean, covariance)
    is_given = ~np.isnan(given)
    np.testing.assert_array_equal(forecast.samples.values[:, is_given], np.tile(given[is_given], (len(draws), 1)))


def some_cells(n=8):
    """Near cells, far ones, whole rows, a row of two cells."""
    given = np.full((n, 3), np.nan)
    given[2, 0], given[n - 2] = 14.0, [12.0, 9.0, 11.0]
    given[4, 1:] = [7.0, 12.0]
    return given


@pytest.mark.parametrize(
    "lags, with_covariates",
    [pytest.param(1, False, marks=SLOW), (3, True), pytest.param((1, 2, 6), False, marks=SLOW)],
)
def test_linear_gaussian_models_have_their_exact_law(lags, with_covariates):
    y, rng = frame(), np.random.default_rng(3)
    X = pd.DataFrame({"u": rng.normal(size=len(HOURS))}, index=HOURS) if with_covariates else None
    model = wf.WishartForecaster(lags=lags, **LINEAR).fit(y, None if X is None else X.iloc[:N])
    given = some_cells()
    found = model.forecast(8, X, n_draws=4000, given=pd.DataFrame(given, HOURS[N : N + 8], y.columns))
    u = np.zeros((N + 8, 0)) if X is None else model.units_.x_scaler.forward(X.to_numpy()[: N + 8])
    memory = max(model.lags_)
    assert_exact(model, y.to_numpy()[-memory:], np.arange(memory + 8.0), u[N - memory :], given, found)


def test_one_far_cell_acts_backwards_forwards_and_sideways():
    """The means of all other cells of the path move, as the exact law says, by more than Monte Carlo errors."""
    y = frame()
    model = wf.WishartForecaster(**LINEAR).fit(y)
    given = np.full((6, 3), np.nan)
    given[3, 0] = model.forecast(6).quantile(0.98).iloc[3, 0]
    found, plain = model.forecast(6, n_draws=4000, given=given), model.forecast(6, n_draws=4000)
    assert_exact(model, y.to_numpy()[-1:], np.arange(7.0), np.zeros((7, 0)), given, found)
    moved = (found.mean - plain.mean).to_numpy() / plain.samples.values.std(axis=0)
    assert (moved[:, 0] > 0.3).all() and moved[3, 1] > 0.3


@pytest.mark.parametrize("given", [pytest.param(None, marks=SLOW, id="plain"), pytest.param(some_cells(), id="given")])
def test_holes_at_the_end_of_the_past_are_a_part_of_the_law(given):
    """The forecast integrates over them, and given cells tell about them too."""
    y = frame()
    y.iloc[-5:, 0], y.iloc[-3:, 1], y.iloc[-1:, 2] = np.nan, np.nan, np.nan
    y.iloc[-2, 2] = np.nan
    model = wf.WishartForecaster(lags=2, **LINEAR).fit(y)
    found = model.forecast(8, n_draws=4000, given=given)
    cells = np.full((8, 3), np.nan) if given is None else given
    n_past = 9
    assert_exact(model, y.to_numpy()[-n_past:], np.arange(n_past + 8.0), np.zeros((n_past + 8, 0)), cells, found)


@pytest.mark.parametrize(
    "given, step",
    [
        pytest.param(None, 1.0, marks=SLOW, id="plain"),
        pytest.param(None, 0.5, marks=SLOW, id="plain-half"),
        pytest.param(some_cells(6), 1.0, marks=SLOW, id="given"),
        pytest.param(some_cells(6), 0.5, id="given-half"),
    ],
)
def test_irregular_stamps_are_cut_into_steps(given, step):
    """Stamps of the data and of the horizon at any distance, with holes before the end."""
    rng = np.random.default_rng(5)
    gaps = rng.uniform(0.5, 2.5, size=N + 6)
    times = np.cumsum(gaps)
    y = frame(index=pd.Index(times))
    y.iloc[-2:, 0], y.iloc[-1, 1] = np.nan, np.nan
    model = wf.WishartForecaster(step=step, **LINEAR).fit(y)
    found = model.forecast(pd.Index(times[N:]), n_draws=4000, given=given)
    cells = np.full((6, 3), np.nan) if given is None else given
    units = times / model.units_.axis.unit
    assert_exact(model, y.to_numpy()[-6:], units[N - 6 :], np.zeros((12, 0)), cells, found)


# --- other laws, by importance sampling ----------------------------------------------------------


def volatile(**options):
    """A fitted model whose noise depends strongly on the state, in the units of the model."""
    rng, level = np.random.default_rng(0), np.zeros((400, 2))
    for t in range(1, 400):
        spread = 0.1 + 0.4 * (level[t - 1, 0] > 0)
        level[t] = 0.8 * level[t - 1] + spread * np.array([[1.0, 0.0], [0.8, 0.6]]) @ rng.normal(size=2)
    options = {**SMALL, "n_inducing": 20, "max_iter": 150, **options}
    return wf.WishartForecaster(**options).fit(pd.DataFrame(level, columns=["a", "b"]))


def weighed(model, cell, n_steps, n=40_000):
    """Plain paths up to the step before the last, weighed by the density of the given last cell of the first series; at
    its low limit by the probability to go there or beyond.
    """
    runner, (tail,) = runner_of(model.model_, model.limits_), model.tails_.values()
    ticks = model.units_.ticks(tail)[-1]
    h, u = np.ones(n_steps), np.zeros((n_steps, 0))
    paths, before, _ = runner.paths(ticks, h, u, n, 1)
    here = field_of(model).in_parts().at(jnp.asarray(before[:, -1]))
    mean, dof = np.asarray(before[:, -1, :1] + here.drift[:, :1])[:, 0], here.tails
    total = np.zeros(n)
    for k in range(30):
        F = np.asarray(here.factor(jax.random.key(k)))
        variance = (F[:, 0] ** 2).sum(-1) + np.asarray(here.white)[:, 0]
        scale = 1.0
        if dof is not None:
            scale = (float(dof) - 2.0) / np.random.default_rng(k).chisquare(float(dof), size=n)
        z = (cell - mean) / np.sqrt(scale * variance)
        at_limit = model.limits_ is not None and cell == model.limits_[0, 0]
        total += norm.cdf(z) if at_limit else norm.pdf(z) / np.sqrt(scale * variance)
    return paths[:, :-1], total / total.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, cell",
    [
        pytest.param({}, 1.2, id="wishart"),
        pytest.param({"innovations": "student_t"}, 1.2, id="student", marks=pytest.mark.long),
        pytest.param({"limits": 0.0}, 1.2, id="limits", marks=pytest.mark.long),
        pytest.param({"limits": 0.0}, "low", id="at-limit"),
    ],
)
def test_noise_that_depends_on_the_state_agrees_with_importance_sampling(options, cell):
    """Means and squares of all cells before a given one, which the weights of plain paths tell without any guide."""
    model, n_steps = volatile(**options), 4
    cell = model.limits_[0, 0] if cell == "low" else cell
    (tail,) = model.tails_.values()
    ticks = model.units_.ticks(tail)[-1]
    paths, weights = weighed(model, cell, n_steps)
    y = np.full((n_steps, 2), np.nan)
    y[-1, 0] = cell
    found = runner_of(model.model_, model.limits_).paths_given(
        ticks, np.ones(n_steps), np.zeros((n_steps, 0)), y, 4000, 2
    )
    assert found.n_effective > 300
    for power in (1, 2):
        by_weight = np.einsum("s,stp->tp", weights, paths**power)
        error = np.sqrt(np.einsum("s,stp->tp", weights**2, (paths**power - by_weight) ** 2))
        draws = found.draws[:, :-1] ** power
        own = draws.std(axis=0) / np.sqrt(found.n_effective)
        away = np.abs(draws.mean(axis=0) - by_weight) / np.hypot(error, own)
        assert away.max() < 4.5, away
    plain = paths.mean(axis=0)
    moved = np.abs(found.draws[:, :-1].mean(axis=0) - plain)
    assert moved[-1, 0] > 0.1  # a test that could fail


@pytest.mark.slow
def test_a_drift_that_each_path_draws_agrees_with_plain_paths_near_the_given_cells():
    """A function of the drift stays with its path when particles are drawn anew."""
    model, n_steps = volatile(drift_posterior="gaussian", max_iter=10), 6
    (tail,) = model.tails_.values()
    runner, ticks = runner_of(model.model_), model.units_.ticks(tail)[-1]
    h, u = np.ones(n_steps), np.zeros((n_steps, 0))
    paths = runner.paths(ticks, h, u, 100_000, 1)[0]
    cells = np.quantile(paths[:, [2, 4], 0], 0.8, axis=0)
    width = 0.15 * paths[:, 2, 0].std()
    near = paths[(np.abs(paths[:, [2, 4], 0] - cells) < width).all(axis=1)]
    y = np.full((n_steps, 2), np.nan)
    y[[2, 4], 0] = cells
    found = runner.paths_given(ticks, h, u, y, 4000, 2)
    own, others = found.draws.std(axis=0) / np.sqrt(found.n_effective), near.std(axis=0) / np.sqrt(len(near))
    away = np.abs(found.draws.mean(axis=0) - near.mean(axis=0)) / np.hypot(own, others)
    free = np.isnan(y)
    assert len(near) > 500 and away[free].max() < 4.5, away
    assert np.abs(near.mean(axis=0) - paths.mean(axis=0))[-1, 0] > 0.1  # a test that could fail


# --- frames --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def y():
    return frame()


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WishartForecaster(**LINEAR).fit(y)


def test_all_cells_free_is_the_plain_forecast(fitted):
    plain = fitted.forecast(6, n_draws=50)
    free = pd.DataFrame(np.nan, index=plain.index, columns=["a"])
    for given in (free, np.full((6, 3), np.nan), None):
        found = fitted.forecast(6, n_draws=50, given=given)
        np.testing.assert_array_equal(found.samples, plain.samples)
        assert found.given is None


def test_frames_are_found_by_names_and_stamps(fitted, y):
    """In any order of columns, with some of the stamps, as a Series or as an array."""
    stamps = HOURS[N + 1 : N + 3]
    frames = [
        pd.DataFrame({"c": [9.0, np.nan], "a": [11.5, 12.0]}, index=stamps),
        pd.DataFrame({"a": [11.5, 12.0], "b": [np.nan, np.nan], "c": [9.0, np.nan]}, index=stamps),
    ]
    whole = np.full((4, 3), np.nan)
    whole[1:3, 0], whole[1, 2] = [11.5, 12.0], 9.0
    found = [fitted.forecast(4, n_draws=50, given=given) for given in (*frames, whole)]
    for forecast in found:
        np.testing.assert_array_equal(forecast.samples, found[0].samples)
        pd.testing.assert_frame_equal(
            forecast.given, pd.DataFrame(whole, HOURS[N : N + 4], y.columns), check_freq=False
        )
    named = fitted.forecast(4, n_draws=50, given=pd.Series([11.5, 12.0], stamps, name="a"))
    np.testing.assert_array_equal(named.samples.sel(variable="a").values[:, 1:3], np.tile([11.5, 12.0], (50, 1)))


@pytest.mark.parametrize(
    "given, words",
    [
        (pd.DataFrame({"d": [1.0]}, index=HOURS[N : N + 1]), "unknown: 'd'"),
        (pd.DataFrame({"a": [1.0]}, index=HOURS[N + 9 : N + 10]), "is no stamp of this forecast.*add it to fh"),
        (pd.DataFrame({"a": [1.0]}, index=HOURS[N - 1 : N]), "is no stamp of this forecast"),
        (pd.DataFrame([[1.0, 2.0]], HOURS[N : N + 1], ["a", "a"]), "twice: 'a'"),
        (pd.DataFrame({"a": [np.inf]}, index=HOURS[N : N + 1]), "infinity"),
        (pd.DataFrame({"a": [1.0]}, index=[3]), "numbers"),
        (np.zeros((3, 3)), r"shape \(3, 3\); expected \(4, 3\)"),
        ({"north": np.zeros((4, 3))}, "the series 'north'.*fitted to one series"),
    ],
    ids=["column", "later", "earlier", "twice", "infinity", "kind", "shape", "key"],
)
def test_what_is_given_must_belong_to_the_forecast(fitted, given, words):
    with pytest.raises(DataError, match=words):
        fitted.forecast(4, n_draws=20, given=given)


@pytest.mark.parametrize("kind", ["zone", "period", "number"])
def test_stamps_of_all_kinds_are_found(y, kind):
    """Those of another time zone are the same moments, and numbers are the same but for rounding."""
    index = {
        "zone": HOURS.tz_localize("Europe/Berlin"),
        "period": HOURS.to_period("h"),
        "number": pd.Index(0.1 * np.arange(len(HOURS))),
    }[kind]
    model = wf.WishartForecaster(**LINEAR).fit(y.set_axis(index[:N]))
    stamps = index[N + 2 : N + 3]
    stamps = stamps.tz_convert("UTC") if kind == "zone" else stamps + 1e-9 if kind == "number" else stamps
    found = model.forecast(4, n_draws=20, given=pd.DataFrame({"a": [12.5]}, index=stamps))
    assert (found.samples.values[:, 2, 0] == 12.5).all() and np.isnan(found.given.to_numpy()).sum() == 11


def test_values_go_through_the_transform(y):
    """A scenario behind log1p is that of the transformed series, mapped back; values it cannot take are named."""
    rain = np.expm1(0.1 * y)
    logs = wf.WishartForecaster(**LINEAR).fit(np.log1p(rain))
    model = wf.WishartForecaster(transform="log1p", **LINEAR).fit(rain)
    given = np.full((5, 3), np.nan)
    given[3, 0] = 1.1
    found = model.forecast(5, n_draws=100, given=np.expm1(given))
    expected = logs.forecast(5, n_draws=100, given=given)
    np.testing.assert_allclose(np.log1p(found.samples), expected.samples, rtol=1e-5, atol=1e-6)
    assert (found.samples.values[:, 3, 0] == np.expm1(1.1)).all()
    with pytest.raises(DataError, match="takes values of at least 0"):
        model.forecast(5, given=np.where(np.isnan(given), given, -0.5))


def test_scenarios_condition_the_recalibrated_law(y):
    """With bands twice as wide a given value is half as far out, and what follows from it is as far in the wide law.

    For a scale that is the same for all cells the means are those without recalibration, and deviations are twice as
    large.
    """
    from wishflow.series.recalibration import HorizonScales

    model = wf.WishartForecaster(**LINEAR).fit(y)
    given = np.full((5, 3), np.nan)
    given[3, 0] = 13.0
    plain = model.forecast(5, n_draws=4000, given=given)
    model.calibration_ = HorizonScales(np.array([1.0]), np.full((1, 3), 2.0))
    wide = model.forecast(5, n_draws=4000, given=given)
    free = np.isnan(given)
    sd = plain.samples.values.std(axis=0)[free]
    np.testing.assert_allclose(wide.samples.values.std(axis=0)[free], 2.0 * sd, rtol=0.08)
    assert np.abs((wide.mean - plain.mean).to_numpy()[free] / sd).max() < 0.15
    assert (wide.samples.values[:, 3, 0] == 13.0).all()


def test_densities_of_scenarios_are_those_of_the_free_cells(fitted):
    given = np.full((3, 3), np.nan)
    given[1, 0], given[2] = 11.0, [11.0, 10.0, 10.0]
    found = fitted.forecast(3, n_draws=500, given=given)
    truth = np.full((3, 3), 10.5)
    scores = found.log_prob(truth, kind="moments").to_numpy()
    expected = wf.metrics.moment_matched_log_density(truth[1:2, 1:], found.samples.values[:, 1:2, 1:])
    np.testing.assert_allclose(scores[1], expected[0], rtol=1e-10)
    assert scores[2] == 0.0 and np.isfinite(scores[0])
    with pytest.raises(OptionError, match="conditioned on given cells"):
        found.log_prob(truth)


def test_frames_of_a_scenario_are_those_of_its_paths(fitted):
    given = pd.DataFrame({"a": [13.0]}, index=HOURS[N + 1 : N + 2])
    paths = fitted.forecast(3, given=given).samples.values
    np.testing.assert_allclose(fitted.predict(3, given=given), paths.mean(axis=0))
    variance = fitted.predict_var(3, given=given)
    np.testing.assert_allclose(variance, paths.var(axis=0, ddof=1))
    ends = np.quantile(paths, [0.1, 0.9], axis=0)
    quantiles = fitted.predict_quantiles(3, alpha=[0.1, 0.9], given=given)
    np.testing.assert_allclose(quantiles.to_numpy().reshape(3, 3, 2), np.moveaxis(ends, 0, -1))
    interval = fitted.predict_interval(3, coverage=0.8, given=given)
    np.testing.assert_allclose(interval, quantiles, rtol=1e-12)
    assert variance.iloc[1, 0] == 0.0 and (interval.iloc[1, :2] == 13.0).all()


def test_series_of_a_panel_have_scenarios_of_their_own(y):
    panel = {"north": y, "south": frame(seed=1)}
    model = wf.WishartForecaster(**LINEAR).fit(panel)
    given = pd.DataFrame({"a": [13.0]}, index=HOURS[N + 2 : N + 3])
    plain, one, both = (model.forecast(4, n_draws=20, given=g) for g in (None, {"north": given}, given))
    np.testing.assert_array_equal(one["south"].samples, plain["south"].samples)
    for found in (one["north"], both["north"], both["south"]):
        assert (found.samples.values[:, 2, 0] == 13.0).all()
    stacked = pd.concat({"north": given})
    np.testing.assert_array_equal(model.forecast(4, n_draws=20, given=stacked)["north"].samples, one["north"].samples)
    with pytest.raises(DataError, match="the series 'east'"):
        model.forecast(4, given={"east": given})


def test_draws_that_are_worth_few_are_named():
    """A value that almost no path reaches: the warning says so, and the cell is as given."""
    model = volatile()
    given = np.full((2, 2), np.nan)
    given[0, 0] = 40.0
    with pytest.warns(UserWarning, match="worth about .* independent ones"):
        found = model.forecast(2, n_draws=1000, given=given)
    assert (found.samples.values[:, 0, 0] == 40.0).all() and np.isfinite(found.samples).all()


# --- latent states -------------------------------------------------------------------------------


def latent_law(model, z):
    """Mean and covariance of the cells of a linear latent model that are NaN given the others."""
    whole = jax.tree.map(jnp.asarray, model.model_)
    field, readout, dim = whole.field, whole.readout, whole.field.layout.dim
    W, b = np.asarray(field.linear.weights), np.asarray(field.linear.constant)
    Q = np.asarray(field.in_parts().at(jnp.zeros((1, dim))).mean_covariance())[0]
    C, white = np.asarray(readout.weights), np.asarray(readout.white.value)
    n, A = len(z), np.eye(dim) + W
    means, loads = [np.zeros(dim)], np.zeros((n, dim, n * dim))
    loads[0, :, :dim] = np.eye(dim)
    for t in range(1, n):
        means.append(A @ means[-1] + b)
        loads[t] = A @ loads[t - 1]
        loads[t, :, t * dim : (t + 1) * dim] = np.linalg.cholesky(Q)
    B = (C @ loads).reshape(-1, n * dim)
    mean = (np.stack(means) @ C.T + np.asarray(readout.constant)).ravel()
    covariance = B @ B.T + np.diag(np.tile(white, n))
    seen = ~np.isnan(z.ravel())
    gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, ~seen)]).T
    rest = covariance[np.ix_(~seen, ~seen)] - gain @ covariance[np.ix_(seen, ~seen)]
    return mean[~seen] + gain @ (z.ravel()[seen] - mean[seen]), rest


@pytest.mark.slow
def test_linear_latent_models_have_their_exact_law(y):
    """But for the particles that the filter starts from: 500 draws of the state at the end of the data."""
    model = wf.WishartForecaster(latent_dim=2, **LINEAR).fit(y)
    n_ahead, (tail,) = 6, model.tails_.values()
    given = np.full((n_ahead, 3), np.nan)
    given[4], given[2, 0] = [13.0, 12.0, 9.0], 12.0
    found = model.forecast(n_ahead, n_draws=2000, given=given)
    z = np.concatenate([tail.values, model.units_.forward(given)])
    mean, covariance = latent_law(model, z)
    free = np.isnan(given)
    draws = model.units_.forward(found.samples.values)[:, free]
    sd = np.sqrt(np.diagonal(covariance))
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < 4.5 * np.sqrt(1 / 500 + 1 / 2000)
    errors = (np.cov(draws.T) - covariance) / np.outer(sd, sd)
    assert np.abs(errors).max() < 4.5 * np.sqrt(2 * (1 / 500 + 1 / 2000))
    moved = (found.mean - model.forecast(n_ahead, n_draws=2000).mean).to_numpy()
    assert moved[1, 0] > 0.3  # backwards
    assert (found.samples.values[:, 4] == given[4]).all()


# --- evidence ------------------------------------------------------------------------------------


def evidence_of(model, y, given):
    """The exact log density of the given cells, in model units."""
    law = JointNormal(model, np.concatenate([y.to_numpy()[-1:], given]), np.arange(len(given) + 1.0), np.zeros((99, 0)))
    at = np.flatnonzero(~np.isnan(law.y))
    density = multivariate_normal.logpdf(law.y[at], law.mean[at], law.covariance[np.ix_(at, at)])
    return density + np.log(np.broadcast_to(model.units_.y_scaler.scale, given.shape))[~np.isnan(given)].sum()


def run_given(model, given, runner=None):
    runner = model._runner() if runner is None else runner
    ticks = model.units_.ticks(next(iter(model.tails_.values())))
    h, u = np.ones(len(given)), np.zeros((len(given), 0))
    return runner.paths_given(ticks[-1], h, u, model.units_.forward(given), 1000, 0)


@pytest.mark.parametrize("width", [1.0, 4.0])
def test_weights_estimate_the_density_of_the_given_cells(width, monkeypatch):
    """Whatever the width of the law ahead, so that runs of several widths can be joined."""
    monkeypatch.setattr(scenarios, "WIDTHS", (width,))
    y = frame()
    model, given = wf.WishartForecaster(lags=1, **LINEAR).fit(y), some_cells()
    exact, found = evidence_of(model, y, given), run_given(model, given)
    assert found.log_evidence == pytest.approx(exact, abs=1e-4 if width == 1.0 else 0.3)


def test_given_cells_reweigh_members():
    """Paths come from the member that expected the cells."""
    y = frame()
    model = wf.WishartForecaster(lags=1, **LINEAR).fit(y)
    other = wf.WishartForecaster(lags=1, **LINEAR).fit(y.iloc[::-1].set_index(y.index) + 0.5 * y.to_numpy()[:1])
    given = np.full((4, 3), np.nan)
    given[0, 0] = y.iloc[-1, 0]
    runners = [model._runner(), other._runner()]
    each = [run_given(model, given, runner).log_evidence for runner in runners]
    mixed = run_given(model, given, MixedRunner(runners, np.array([0.3, 0.7])))
    assert mixed.log_evidence == pytest.approx(np.logaddexp(np.log(0.3) + each[0], np.log(0.7) + each[1]))
    assert abs(each[0] - each[1]) > 0.01
