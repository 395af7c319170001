"""`WideForecaster`: densities and draws of a law that is never a D × D matrix, holes, files, what it recovers."""

import copy
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import multivariate_normal
from sklearn.base import clone

import wishflow as wf
from wishflow.errors import DataError, ModelFileError, OptionError
from wishflow.files.model_file import read_model, write_model
from wishflow.series import backtesting
from wishflow.series.summary import announce
from wishflow.series.wide import own
from wishflow.series.wide.factors import Loadings, n_factors_of
from wishflow.series.wide.forecaster import _require_factors

# Constant noise: densities have no Monte Carlo error.
INNER = {
    "drift": "linear",
    "diffusion": "constant",
    "n_inducing": 2,
    "max_iter": 3,
    "validation_fraction": 0,
    "lags": 2,
}
N, D, R = 400, 40, 2


def factor_rows(n=N, d=D, seed=0):
    """Two factors and noise of each series, both auto-regressions."""
    rng = np.random.default_rng(seed)
    loadings, factors, left = rng.normal(size=(d, R)), np.zeros((n, R)), np.zeros((n, d))
    for t in range(1, n):
        factors[t] = np.array([0.9, 0.6]) * factors[t - 1] + rng.normal(size=R)
        left[t] = 0.7 * left[t - 1] + 0.5 * rng.normal(size=d)
    index = pd.date_range("2024-01-01", periods=n, freq="h", name="hour")
    return pd.DataFrame(5.0 + factors @ loadings.T + left, index, [f"s{k}" for k in range(d)])


@pytest.fixture(scope="module")
def y():
    return factor_rows()


@pytest.fixture(scope="module")
def fitted(y):
    return wf.WideForecaster(forecaster=wf.WishartForecaster(**INNER)).fit(y.iloc[:350])


def small_law(seed=1):
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    loadings = Loadings(rng.normal(size=6), np.exp(rng.normal(size=6)), V, np.ones(2))
    return (
        loadings,
        rng.normal(size=2),
        np.array([[1.0, 0.4], [0.4, 0.8]]),
        rng.normal(size=6),
        np.exp(rng.normal(size=6)),
    )


def test_the_density_is_that_of_the_dense_normal_law():
    """log N(f; m, Σ) and the density of what is left add up to that of N(V m + P μ, V Σ Vᵀ + P S P)."""
    loadings, m, sigma, mu, variance = small_law()
    V, P = loadings.V, np.eye(6) - loadings.V @ loadings.V.T
    mean, covariance = V @ m + P @ mu, V @ sigma @ V.T + P @ np.diag(variance) @ P
    y = loadings.mean + loadings.scale * np.random.default_rng(2).normal(size=(5, 6))
    z = loadings.forward(y)
    f, e = loadings.parts(z)
    found = multivariate_normal(m, sigma).logpdf(f) + loadings.left_log_density(e - mu, variance[None])
    np.testing.assert_allclose(found, multivariate_normal(mean, covariance).logpdf(z), rtol=1e-10)
    # The scale of y has its Jacobian.
    S = np.diag(loadings.scale)
    of_y = multivariate_normal(loadings.mean + S @ mean, S @ covariance @ S).logpdf(y)
    np.testing.assert_allclose(found + loadings.log_jacobian(y), of_y, rtol=1e-10)


def test_the_density_of_observed_cells_is_that_of_their_factors_and_the_rest():
    """With missing cells: the dense normal law V_o Σ V_oᵀ + P_o S_o P_o, with P_o of the complement of V_o."""
    loadings, m, sigma, mu, variance = small_law()
    seen = np.array([0, 2, 3, 5])
    V = loadings.V[seen]
    P = np.eye(4) - V @ np.linalg.solve(V.T @ V, V.T)
    z = np.full((1, 6), np.nan)
    z[0, seen] = np.random.default_rng(3).normal(size=4)
    f, e = loadings.parts(z)
    found = multivariate_normal(m, sigma).logpdf(f) + loadings.left_log_density(e - mu, variance[None])
    law = multivariate_normal(V @ m + P @ mu[seen], V @ sigma @ V.T + P @ np.diag(variance[seen]) @ P)
    np.testing.assert_allclose(found, law.logpdf(z[0, seen]), rtol=1e-9)


def test_draws_have_the_moments_of_the_density(fitted):
    """Factors of the draws are those of their forecaster; what is left has mean and covariance of the density."""
    n = 4000
    found = fitted.forecast([1, 5], n_draws=n)
    loadings = fitted.loadings_
    f, e = loadings.parts(loadings.forward(found.samples.values).reshape(-1, D))
    inner = fitted.factors_.forecast([1, 5], n_draws=n).samples.values
    np.testing.assert_allclose(f.reshape(n, 2, -1), inner, atol=1e-9)
    past, ages = fitted._past()
    mean, variance = (part[[0, 4]] for part in fitted.own_.ahead(past, fitted._inputs(fitted._ahead(5)), ages))
    P = np.eye(D) - loadings.V @ loadings.V.T
    for k, draws in enumerate(np.moveaxis(e.reshape(n, 2, D), 1, 0)):
        covariance = P @ np.diag(variance[k]) @ P
        error = np.sqrt(np.diag(covariance) / n)
        np.testing.assert_array_less(np.abs(draws.mean(axis=0) - P @ mean[k]), 4.5 * error)
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=6.0 * variance.max() / np.sqrt(n))
        # The mean log density of draws is minus the entropy, ½ (log det(2πe UᵀSU)).
        density = loadings.left_log_density(draws - mean[k], variance[k][None])
        values = np.linalg.eigvalsh(covariance)[fitted.n_factors_ :]
        entropy = 0.5 * np.sum(np.log(2.0 * np.pi * np.e * values))
        assert abs(density.mean() + entropy) < 4.5 * density.std() / np.sqrt(n)


def test_one_step_of_a_forecast_has_the_density_of_the_next_row(fitted, y):
    row = y.iloc[350:351]
    assert fitted.forecast(1, n_draws=20).log_prob(row).item() == pytest.approx(fitted.log_prob(row).item())
    ahead, later = fitted.log_prob(y.iloc[350:360]), copy.copy(fitted).update(y.iloc[350:355])
    pd.testing.assert_series_equal(later.log_prob(y.iloc[355:360]), ahead.iloc[5:])
    whole = fitted.log_prob(y.iloc[200:360])
    assert whole.iloc[: fitted.own_.memory].isna().all() and whole.iloc[fitted.own_.memory :].notna().all()
    np.testing.assert_allclose(whole.iloc[150:], ahead, rtol=1e-6)


def test_factors_and_dynamics_are_recovered(fitted, y):
    """Two factors, lags near those that were simulated, and held-out rows better than by regressions alone."""
    assert fitted.n_factors_ == R and 0.5 < fitted.explained_ < 1.0
    first = fitted.own_.weights[fitted.own_.lags.index(1)]
    assert abs(first.mean() - 0.7) < 0.1
    alone = own.fitted(
        ((y - y.iloc[:350].mean()) / y.iloc[:350].std()).iloc[:350].to_numpy(), np.ones((350, 1)), [(1,), (1, 2, 3)]
    )
    z = ((y - y.iloc[:350].mean()) / y.iloc[:350].std()).to_numpy()
    errors = z - alone.means(z, np.ones((N, 1)))[0]
    independent = -0.5 * (errors**2 / alone.variance + np.log(2.0 * np.pi * alone.variance)).sum(axis=1)
    independent -= np.log(y.iloc[:350].std()).sum()
    gain = fitted.log_prob(y.iloc[350:]).to_numpy() - independent[350:]
    assert gain.mean() > 3.0


def test_factors_are_what_stands_above_the_edge_of_noise():
    """Eigenvalues that fall as those of noise, with and without three large ones; noise correlated in time."""
    edge = 10.0 - np.arange(1, 20) ** (2.0 / 3.0)
    assert n_factors_of(np.array([50.0, 30.0, 20.0, *edge]), 10) == 3
    assert n_factors_of(edge, 10) == 1
    rows = [factor_rows(200, 100, seed).to_numpy() for seed in range(5)]
    found = [Loadings.learnt(one, None, 0).n_factors for one in rows]
    assert min(found) == R == np.median(found) and max(found) <= R + 2


def test_own_dynamics_are_those_of_long_regressions():
    """With many rows the weights are those of least squares, and unused inputs have weight 0."""
    rng = np.random.default_rng(4)
    e = np.zeros((3000, 5))
    for t in range(2, len(e)):
        e[t] = 0.5 * e[t - 1] + 0.3 * e[t - 2] + rng.normal(size=5)
    found = own.fitted(e, np.ones((3000, 1)), [(1, 2)])
    for d in range(5):
        X = np.stack([e[1:-1, d], e[:-2, d], np.ones(2998)], axis=1)
        np.testing.assert_allclose(found.weights[:, d], np.linalg.lstsq(X, e[2:, d], rcond=None)[0], atol=0.01)
    np.testing.assert_allclose(found.variance, 1.0, atol=0.1)
    mean, variance = found.ahead(e, np.ones((2000, 1)), np.zeros(5, int))
    np.testing.assert_allclose(variance[-1], e.var(axis=0), rtol=0.25)  # far ahead: the law of all rows
    np.testing.assert_allclose(mean[0], found.means(np.vstack([e, e[-1:]]), np.ones((3001, 1)))[0][-1])


def test_own_variances_are_those_before_the_projection():
    """diag(P S P) are the variances of what the factors leave; taken as S they would be projected twice."""
    rng = np.random.default_rng(0)
    for d, r in ((8, 2), (40, 10)):
        V, S = np.linalg.qr(rng.normal(size=(d, r)))[0], np.exp(0.5 * rng.normal(size=d))
        P = np.eye(d) - V @ V.T
        left = np.diag(P @ np.diag(S) @ P)
        found = Loadings(np.zeros(d), np.ones(d), V, np.ones(r)).own_variance(left)
        np.testing.assert_allclose(np.diag(P @ np.diag(found) @ P), left, rtol=0.02)
        assert np.median(left / S) < 0.85


def test_variances_are_those_of_held_out_errors():
    """Nine series with three factors: what the law says of the next rows is what they do."""
    y, ones = factor_rows(600, 9, seed=3).to_numpy(), np.ones((600, 1))
    loadings = Loadings.learnt(y[:400], 3, 0)
    e = loadings.parts(loadings.forward(y))[1]
    law = own.fitted(e[:400], ones[:400], [(1,)])
    errors = (e - law.means(e, ones)[0])[400:]
    P = np.eye(9) - loadings.V @ loadings.V.T
    once, twice = (
        np.median(np.diag(P @ np.diag(v) @ P) / errors.var(axis=0))
        for v in (loadings.own_variance(law.variance), law.variance)
    )
    assert 0.9 < once < 1.15 and twice < 0.87


def test_own_dynamics_do_not_explode():
    """Roots of random walks are at most 1; the weights of lag l are those found, times c^l."""
    for lags, weights in (((1,), [1.05]), ((1, 2), [0.4, -1.1]), ((1, 4, 5), [0.9, 0.8, -0.5])):
        found = own._bounded(np.array(weights)[:, None], lags)[:, 0]
        companion = np.eye(max(lags), k=-1)
        companion[0, np.array(lags) - 1] = found
        assert 0.999 < np.abs(np.linalg.eigvals(companion)).max() <= 1.0 + 1e-9
    calm = np.array([[0.5], [0.3]])
    np.testing.assert_array_equal(own._bounded(calm, (1, 2)), calm)
    walks = np.random.default_rng(0).normal(size=(120, 300)).cumsum(axis=0)
    assert own.fitted(walks, np.ones((120, 1)), [(1,)]).weights[0].max() <= 1.0


def test_columns_with_holes_are_weighed_by_their_observed_cells(y):
    """Half of a column missing at random: nearly the scale of the whole column; filled cells have no noise."""
    rows = y.to_numpy()
    holes = rows.copy()
    holes[::2, :5] = np.nan
    one, other = (Loadings.learnt(part, R, 0).scale[:5] for part in (rows, holes))
    np.testing.assert_allclose(other, one, rtol=0.15)


def simulated(n, d, rng):
    e = np.zeros((n, d))
    for t in range(2, n):
        e[t] = 0.6 * e[t - 1] + 0.37 * e[t - 2] + rng.normal(size=d)
    return e


def test_missing_cells_at_the_end_widen_what_follows():
    """Thirty rows without half of the columns: errors have the variances that are said, and so have draws."""
    d = 400
    law = own.OwnDynamics((1, 2), np.repeat([[0.6], [0.37], [0.0]], d, axis=1), np.ones(d))
    e = simulated(185, d, np.random.default_rng(0))
    known = e[:180].copy()
    known[150:, :200] = np.nan
    ages = own.ages_of(known)
    assert ages[-1, 0] == 30 and ages[-1, -1] == 0 == ages[:150].max()
    mean, variance = law.ahead(law.means(known, np.ones((180, 1)))[1], np.ones((5, 1)), ages[-1])
    errors = (e[180:] - mean) ** 2 / variance
    for columns in (slice(200), slice(200, d)):
        np.testing.assert_allclose(np.sqrt(errors[[0, 4], columns].mean(axis=1)), 1.0, atol=0.2)
    draws = {k: [] for k in (0, 1)}
    for _, k, values in law.deviations(1, 300, [1, 5], ages[-1]):
        draws[k].append(values)
    for k, h in enumerate((0, 4)):
        ratio = np.concatenate(draws[k]).var(axis=0) / variance[h]
        assert abs(ratio[:200].mean() - 1.0) < 0.05 and abs(ratio[200:].mean() - 1.0) < 0.05
    np.testing.assert_allclose(law.variances(ages[-1:] + 4), variance[4:])
    # Fewer draws are the first of more.
    np.testing.assert_array_equal(next(iter(law.deviations(1, 3, [1, 5], ages[-1])))[2], draws[0][0][:3])


def test_rows_after_a_hole_have_one_density_by_both_routes(fitted, y):
    later = y.iloc[350:360].copy()
    later.iloc[3:, 0] = np.nan
    updated, row = copy.copy(fitted).update(later), y.iloc[360:361]
    of_forecast = updated.forecast(1, n_draws=200)
    assert of_forecast.log_prob(row).item() == pytest.approx(updated.log_prob(row).item())
    whole = copy.copy(fitted).update(y.iloc[350:360]).forecast(1, n_draws=200)
    wider, narrow = (one.samples.std("draw").values[0] for one in (of_forecast, whole))
    assert wider[0] > 1.15 * narrow[0]
    np.testing.assert_allclose(wider[1:], narrow[1:], rtol=0.2)
    assert abs((wider[1:] / narrow[1:]).mean() - 1.0) < 0.05


@pytest.fixture(scope="module")
def twins():
    """20 series with a common part, but the first two are a random walk and its copy: one factor is theirs alone."""
    rng = np.random.default_rng(6)
    common = pd.Series(4.0 * rng.normal(size=190)).ewm(alpha=0.3).mean().to_numpy()[:, None]
    values = rng.normal(size=(190, 20)) + common
    values[:, 0] = rng.normal(size=190).cumsum()
    values[:, 1] = values[:, 0] + 0.05 * rng.normal(size=190)
    y = pd.DataFrame(values, pd.date_range("2024-01-01", periods=190, freq="h"), [f"s{k}" for k in range(20)])
    inner = wf.WishartForecaster(**{**INNER, "lags": 1})
    return wf.WideForecaster(n_factors=2, own_lags=1, forecaster=inner).fit(y.iloc[:150]), y


def test_factors_that_are_not_seen_leave_the_others(twins):
    """Two columns that stop take their factor with them, not the rows: other factors and cells still count."""
    model, y = twins
    later = y.iloc[150:].copy()
    later.iloc[:, :2] = np.nan
    loadings = model.loadings_
    f, e = loadings.parts(loadings.forward(later.to_numpy()))
    known = ~np.isnan(f)
    assert (known.sum(axis=1) == 1).all() and np.isnan(e[:, 2:]).mean() < 0.2
    whole, _ = loadings.parts(loadings.forward(y.iloc[150:].to_numpy()))
    k = int(np.flatnonzero(known[0])[0])
    assert np.corrcoef(f[:, k], whole[:, k])[0, 1] > 0.99
    scores, of_all = model.log_prob(later), model.log_prob(y.iloc[150:])
    assert scores.notna().all() and abs(scores.mean() - of_all.mean()) < 10.0
    one, other = (copy.copy(model).update(rows).predict(1).to_numpy()[0, 2:] for rows in (later, y.iloc[150:]))
    assert np.abs(one - other).mean() < 0.3 * np.abs(y.mean().to_numpy()[2:] - other).mean()


def test_the_density_of_rows_without_a_factor_is_that_of_the_others(twins):
    """By the dense law V_k Σ V_kᵀ + P_k S P_k of the observed cells, with the known factors alone."""
    loadings = twins[0].loadings_
    z = loadings.forward(twins[1].iloc[150:151].to_numpy())
    z[0, :2] = np.nan
    f, e = loadings.parts(z)
    known = ~np.isnan(f)
    V, S = loadings.V[2:, known[0]], np.linspace(0.5, 2.0, 20)
    P = np.eye(18) - V @ np.linalg.pinv(V)
    found = multivariate_normal(0.0, 3.0).logpdf(f[0, known[0]]) + loadings.left_log_density(e, S[None], known)
    law = multivariate_normal(np.zeros(18), 3.0 * V @ V.T + P @ np.diag(S[2:]) @ P)
    np.testing.assert_allclose(found, law.logpdf(z[0, 2:]), rtol=1e-9)


def telling_nothing(loadings):
    """A column that has much of the factors, but less than a twentieth of each: alone it tells none of them."""
    V = loadings.V
    return np.argmax(np.where((V**2).max(axis=1) < 0.05, V**2 @ loadings.variance, 0.0))


def test_rows_that_tell_nothing_are_counted(fitted, y):
    later, loadings = y.iloc[350:354].copy(), fitted.loadings_
    later.iloc[1:3, np.arange(D) != telling_nothing(loadings)] = np.nan
    with pytest.warns(UserWarning, match="2 of 4 rows have too few observed cells"):
        updated = copy.copy(fitted).update(later)
    assert updated.end_ == y.index[353]


def test_it_is_reported_as_other_models(fitted, tmp_path):
    assert fitted.status_ == fitted.factors_.status_
    assert fitted.status_ in fitted.report(tmp_path / "wide.html").read_text()


def test_backtests_follow_the_frequency_of_the_factors(fitted, y, monkeypatch):
    """The axis of the scores is that of the fit, which a `freq` of the factors' forecaster sets, not that of y."""
    found = lambda rolling, frame, origins, steps, scoring: xr.Dataset(attrs={"axis": scoring.axis})  # noqa: E731
    monkeypatch.setattr(backtesting, "_rolled", found)
    assert wf.backtest(fitted, y.iloc[::2], fh=1, initial=180).attrs["axis"] is fitted.factors_.units_.axis


@pytest.mark.slow
def test_a_daily_cycle_of_one_series_is_its_own(y):
    rows = y.copy()
    rows["s3"] += 6.0 * np.sin(2.0 * np.pi * np.arange(N) / 24.0)
    model = wf.WideForecaster(n_factors=2, forecaster=wf.WishartForecaster(**INNER)).fit(rows)
    path = model.predict(24)["s3"].to_numpy()
    cycle = np.sin(2.0 * np.pi * np.arange(N, N + 24) / 24.0)
    assert np.corrcoef(path, cycle)[0, 1] > 0.9
    assert "lags" in model.summary() and "2 " in model.summary()


def test_loadings_and_factors_of_rows_with_holes_are_nearly_those_of_whole_rows(y):
    rng = np.random.default_rng(5)
    rows = y.to_numpy()
    holes = np.where(rng.uniform(size=rows.shape) < 0.2, np.nan, rows)
    one, other = Loadings.learnt(rows, R, 0), Loadings.learnt(holes, R, 0)
    assert np.linalg.svd(one.V.T @ other.V)[1].min() > 0.98
    f, _ = one.parts(one.forward(rows))
    f_holes, e_holes = one.parts(one.forward(holes))
    assert np.corrcoef(f[:, 0], f_holes[:, 0])[0, 1] > 0.99
    np.testing.assert_array_equal(np.isnan(e_holes), np.isnan(holes))
    few = np.full((1, D), np.nan)
    few[0, telling_nothing(one)] = 1.0  # one cell does not tell two factors
    assert all(np.isnan(part).all() for part in one.parts(few))


@pytest.mark.slow
def test_holes_change_little(fitted, y):
    """A tenth of the cells missing: nearly the same forecasts; a row without cells is no row."""
    rng = np.random.default_rng(5)
    holes = y.iloc[:350].mask(rng.uniform(size=(350, D)) < 0.1)
    holes.iloc[100:110] = np.nan
    model = wf.WideForecaster(n_factors=R, forecaster=wf.WishartForecaster(**INNER)).fit(holes)
    one, other = model.predict([1, 2, 3]), fitted.predict([1, 2, 3])
    assert np.abs((one - other) / y.std()).to_numpy().mean() < 0.25
    scores = model.log_prob(holes)
    assert scores.iloc[100:110].isna().all() and scores.iloc[140:].notna().all()
    later = y.iloc[350:360].mask(rng.uniform(size=(10, D)) < 0.3)
    updated = copy.copy(model).update(later)
    assert updated.end_ == y.index[359] and np.isfinite(updated.forecast(3, n_draws=20).samples.values).all()


def test_updates_are_as_rows_that_were_known_in_time(fitted, y):
    one, other = copy.copy(fitted).update(y.iloc[350:380]), copy.copy(fitted)
    other.update(y.iloc[350:365].assign(s0=np.nan)).update(y.iloc[350:380])
    pd.testing.assert_frame_equal(one.tail_, other.tail_)
    np.testing.assert_allclose(one.predict(4), other.predict(4), rtol=1e-6)
    assert fitted.end_ == y.index[349]


def test_files_give_the_same_numbers(fitted, y, tmp_path):
    fitted.save(tmp_path / "wide.wishflow")
    loaded = wf.load(tmp_path / "wide.wishflow")
    one, other = (model.forecast([1, 7], n_draws=30).samples.values for model in (fitted, loaded))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(fitted.log_prob(y.iloc[350:]), loaded.log_prob(y.iloc[350:]))
    assert loaded.summary() == fitted.summary()
    assert loaded.get_params()["forecaster__lags"] == 2 and loaded.tail_.index.equals(fitted.tail_.index)
    header, arrays = read_model(tmp_path / "wide.wishflow")
    for name, change in (("loadings.V", 2.0), ("own.variance", -1.0), ("loadings.mean", np.nan)):
        write_model(tmp_path / "other", header, {**arrays, name: change * arrays[name]})
        with pytest.raises(ModelFileError):
            wf.load(tmp_path / "other")


def test_it_is_scored_as_other_forecasters(fitted, y):
    scores = wf.backtest(fitted, y, fh=[1, 3], initial=350, step=20, n_draws=60)
    assert dict(scores["crps"].sizes) == {"origin": 3, "horizon": 2, "variable": D}
    assert np.isfinite(scores["crps"]).all() and np.isfinite(scores["log_density"]).all()
    assert 0.4 < float(scores["covered"].mean()) < 1.0


def test_options_are_those_of_scikit_learn():
    model = wf.WideForecaster(n_factors=3, forecaster=wf.WishartForecaster(rank=2))
    assert clone(model).get_params()["forecaster__rank"] == 2
    assert model.set_params(forecaster__rank=4).forecaster.rank == 4


@pytest.mark.slow
def test_memory_grows_with_the_number_of_series():
    """300 series: a forecast of 200 draws takes a few times its own size, far less than 300² for each draw."""
    model = wf.WideForecaster(n_factors=2, forecaster=wf.WishartForecaster(**INNER)).fit(factor_rows(200, 300))
    model.forecast(4, n_draws=200)
    tracemalloc.start()
    found = model.forecast(4, n_draws=200)
    found.log_prob(np.zeros((4, 300)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * found.samples.values.nbytes < 200 * 300**2 * 8 / 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_factors": 0}, "n_factors=0"),
        ({"n_factors": D}, f"n_factors={D}"),
        ({"own_lags": (2, 3)}, "lags"),
        ({"forecaster": "var"}, "expected a WishartForecaster"),
    ],
)
def test_wrong_options_are_named(y, options, message):
    options = {"forecaster": wf.WishartForecaster(**INNER), **options}
    with pytest.raises(OptionError, match=message):
        wf.WideForecaster(**options).fit(y)


def test_what_is_not_supported_is_refused(fitted, y):
    with pytest.raises(DataError, match="expects a regular grid"):
        stamps = y.index[:60] + pd.to_timedelta(np.random.default_rng(0).integers(0, 40, 60), unit="min")
        wf.WideForecaster(forecaster=wf.WishartForecaster(**INNER)).fit(y.iloc[:60].set_axis(stamps))
    with pytest.raises(DataError, match="at least three"):
        wf.WideForecaster().fit(y.iloc[:, :2])
    with pytest.raises(DataError, match="panel of 2 series; WideForecaster expects one frame"):
        wf.WideForecaster().fit({"a": y, "b": y})
    with pytest.raises(DataError, match="have 2 levels"):
        wf.WideForecaster().fit(pd.concat({"a": y}, axis=1))
    for scale in (1e-200, 1e160):
        with pytest.raises(DataError, match=r"series 's3' .* too large or too small"):
            wf.WideForecaster().fit(y.assign(s3=scale * y["s3"]))
    with pytest.raises(OptionError, match="n_factors=30 given; expected a whole number from 1 to 7"):
        wf.WideForecaster(n_factors=30, own_lags=1).fit(y.iloc[:15])
    with pytest.raises(DataError, match="8 rows whose observed cells determine all 2 factors"):
        _require_factors(np.where(np.arange(30)[:, None] < (30, 8), 1.0, np.nan))
    with pytest.raises(OptionError, match="X is given"):
        fitted.forecast(3, X=y)
    with pytest.raises(OptionError, match="given is given"):
        fitted.forecast(3, given=y)
    with pytest.raises(OptionError, match="whole steps of h"):
        fitted.forecast([fitted.end_ + pd.Timedelta("90min")])
    with pytest.raises(DataError, match="missing: 's3'"):
        fitted.update(y.drop(columns="s3").iloc[350:])


def test_lags_to_choose_from_are_those_that_the_rows_are_enough_for():
    model = wf.WideForecaster()
    assert [model._candidates(7, n) for n in (10, 12, 16, 17)] == [
        [(1,)],
        [(1,), (1, 2, 3)],
        [(1,), (1, 2, 3)],
        [(1,), (1, 2, 3), (1, 7, 8), (1, 2, 3, 7, 8)],
    ]
    with pytest.raises(DataError, match="at least 10"):
        model._candidates(7, 9)
    with pytest.raises(DataError, match="lags up to 8 need at least 17"):
        wf.WideForecaster(own_lags=8)._candidates(7, 16)


def test_many_columns_of_the_other_forecaster_name_this_one():
    said = SimpleNamespace(columns_=range(150), innovations="gaussian", units_=None, verbose=0)
    announce(said, ())
    said.columns_ = range(151)
    with pytest.warns(UserWarning, match=r"151 series.*WideForecaster"):
        announce(said, ())
