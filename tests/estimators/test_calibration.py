"""Recalibration and members: one law behind all predictions, honest rows, and what they gain."""

import dataclasses
import functools
import pickle

import equinox as eqx
import jax
import numpy as np
import pytest
import scipy.stats
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import wishflow as wf
from wishflow.errors import DataError, OptionError
from wishflow.numerics.devices import computing
from wishflow.numerics.parameters import Positive
from wishflow.regression.calibration import SCALES, HonestRows, Recalibrated, calibrate, pooled_factor
from wishflow.regression.calibration import recalibrated as recalibrated_rows
from wishflow.regression.data import groups_of
from wishflow.regression.leave_one_out import leave_one_out
from wishflow.regression.members import PRIOR_ROWS, _weights, folds_of
from wishflow.regression.prediction import predictive_cdf, predictive_scales
from wishflow.regression.training import gp_for
from wishflow.training.validation import held_back

QUICK = {"n_inducing": 20, "max_iter": 60, "random_state": 0}


def funnel(n, seed=0):
    """Noise that grows with the input."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, n)
    return x[:, None], np.sin(2.0 * x) + (0.05 + 0.3 * (x > 0) * x) * rng.normal(size=n)


@pytest.fixture(scope="module")
def recalibrated():
    with computing():
        return wf.SparseGPRegressor(**QUICK).fit(*funnel(200))


@pytest.fixture(scope="module")
def members():
    with computing():
        return wf.SparseGPRegressor(n_members=3, **QUICK).fit(*funnel(200))


@pytest.fixture(scope="module")
def mixed():
    """A flow and a sparse GP, weighted by held-back rows."""
    with computing():
        return wf.FlowRegressor(n_steps=2, n_predict_samples=4, validation_fraction=0.2, **QUICK).fit(*funnel(200))


def problem_of(X):
    """What GPs of widths take their settings from."""
    return wf.SparseGPRegressor(n_inducing=50)._prepare(X, np.arange(float(len(X))))


def no_gp(X, y, n_rows):
    raise AssertionError("no GP is fitted to so few rows")


# --- leaving one out -----------------------------------------------------------------------------


def test_leaving_one_out_is_conditioning_on_the_other_rows():
    """With the same kernel, noise and inducing points: the closed form, and a posterior found without the row."""
    from wishflow.regression.batches import padded_batch
    from wishflow.regression.collapsed import optimal_posterior

    with computing():
        X, y = funnel(30)
        model = wf.SparseGPRegressor(n_inducing=8, max_iter=5, random_state=0, calibrate=None).fit(X, y)
        Xs, ys = model.x_scaler_.forward(X), model.y_scaler_.forward(y[:, None])
        means, variances, is_known = leave_one_out(model.model_, Xs, ys)
        assert is_known.all()
        trained = jax.tree.map(jax.numpy.asarray, model.model_)
        for n in (0, 7, 29):
            others = np.arange(30) != n
            q = optimal_posterior(trained, padded_batch(Xs[others], ys[others]))
            gp = dataclasses.replace(trained.output, posterior=q).conditioned()
            mean, variance = gp.marginals(jax.numpy.asarray(Xs[n : n + 1]))
            np.testing.assert_allclose(means[n], mean[0], rtol=1e-8)
            np.testing.assert_allclose(variances[n], variance[0] + trained.likelihood.variance, rtol=1e-8)


# --- one law -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["recalibrated", "members", "mixed"])
def test_all_predictions_describe_one_law(name, request):
    """Density, distribution function, moments, components and draws."""
    model = request.getfixturevalue(name)
    assert model.calibration_ is not None
    x = np.array([[1.5]])
    mean, sd = (float(v[0]) for v in model.predict(x, return_std=True))
    grid = np.linspace(mean - 40 * sd, mean + 40 * sd, 16_001)
    density = np.exp(model.log_prob(np.repeat(x, len(grid), 0), grid))
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1.0, abs=1e-6)
    assert (density * grid).sum() * step == pytest.approx(mean, abs=1e-6)
    assert (density * (grid - mean) ** 2).sum() * step == pytest.approx(sd**2, rel=1e-5)
    levels = np.array([0.025, 0.3, 0.9])
    for level, quantile in zip(levels, model.predict_quantiles(x, levels)[0], strict=True):
        assert density[grid <= quantile].sum() * step == pytest.approx(level, abs=2e-3)
    means, variances, weights = model.predict_components(x, return_weights=True)
    assert weights.sum() == pytest.approx(1.0) and weights @ means[:, 0] == pytest.approx(mean)
    mixed = weights @ scipy.stats.norm.pdf(grid[8_100], means[:, 0], np.sqrt(variances[:, 0]))
    assert mixed == pytest.approx(density[8_100], rel=1e-9)
    draws = model.sample_y(x, 4000)[0]
    assert draws.mean() == pytest.approx(mean, abs=0.1 * sd) and draws.std() == pytest.approx(sd, rel=0.08)
    assert np.mean(draws < model.predict_quantiles(x, [0.9])[0, 0]) == pytest.approx(0.9, abs=0.02)


def test_noise_by_input_is_found(recalibrated):
    """The standard deviation follows the noise, where that of the plain GP is the same everywhere."""
    X, y = funnel(1000, seed=1)
    plain = wf.SparseGPRegressor(calibrate=None, **QUICK).fit(*funnel(200))
    assert plain.calibration_ is None
    assert recalibrated.log_prob(X, y).mean() > plain.log_prob(X, y).mean() + 0.3
    quiet, loud = (recalibrated.predict([[x]], return_std=True)[1][0] for x in (-1.0, 1.8))
    assert loud > 4.0 * quiet
    low, high = recalibrated.predict_interval(X, 0.8).T
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.8, abs=0.05)
    assert "recalibrated" in recalibrated.status_ and "depend on the inputs" in recalibrated.status_


@pytest.mark.parametrize("n_targets", [1, 5])
def test_a_law_that_is_right_is_left_alone(n_targets):
    """Of 40 samples of normal errors few are recalibrated: the test knows how many scales there are."""
    changed = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = (1, 50, n_targets)
        rows = HonestRows(
            rng.normal(size=(50, 2)), rng.normal(size=shape[1:]), np.zeros(shape), np.ones(shape), np.ones(1)
        )
        changed += calibrate(rows, no_gp, seed) is not None
    assert changed <= 6


@pytest.mark.parametrize(("factor", "dof"), [(2.0, None), (0.6, None), (1.0, 2.5)])
def test_scales_and_tails_are_found(factor, dof):
    rng = np.random.default_rng(0)
    errors = factor * (rng.normal(size=(58, 1)) if dof is None else rng.standard_t(dof, (58, 1)))
    rows = HonestRows(np.zeros((58, 1)), errors, np.zeros((1, 58, 1)), np.ones((1, 58, 1)), np.ones(1))
    found = calibrate(rows, no_gp, 0)
    assert found is not None
    if dof is None:
        assert found.scale[0] == pytest.approx(factor, rel=0.2)
    else:
        assert found.tail_share[0] > 0.0
    assert "multiplied by" in found.describe()


def test_mixtures_are_not_recalibrated_by_the_errors_of_their_members():
    """Members that err by themselves: their mixture is wider and errs less, so it needs less than each of them."""
    rng = np.random.default_rng(0)
    n, between = 4000, 0.5
    shifts = rng.normal(size=(n, 1)) * between**0.5
    y = rng.normal(size=(n, 1))
    alone = HonestRows(np.zeros((n, 1)), y, shifts[None], np.full((1, n, 1), 1.0), np.ones(1))
    assert alone.errors().std() == pytest.approx(1.5**0.5, rel=0.05)
    # Many members about the truth: the mean errs by 1, and the mixture is as wide as √1.5.
    together = dataclasses.replace(alone, smaller=np.sqrt(1.0 - between / 1.5), wider=np.sqrt(1.0 + between))
    assert together.errors().std() == pytest.approx(1.5**-0.5, rel=0.05)
    # Its density is that of the mixture, which weighs it beside others.
    expected = scipy.stats.norm.logpdf(y, scale=1.5**0.5).mean()
    assert together.log_densities(together.errors(), 1.0).mean() == pytest.approx(expected, abs=0.02)


def test_members_are_not_too_sure_where_noise_is_small():
    """No noise, and some rows far from all others, about which members disagree: that says nothing of the other rows.

    Intervals of 80 % held 16 % of new rows when all errors were reduced by the mean of that disagreement.
    """

    def table(n, seed):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 3))
        X[::20] *= 6.0
        return X, np.sin(1.5 * X[:, 0]) * np.exp(0.5 * np.tanh(X[:, 1])) + 0.3 * X[:, 2]

    model = wf.SparseGPRegressor(n_inducing=40, max_iter=80, n_members=3, random_state=1).fit(*table(160, 1))
    X, y = table(600, 101)
    is_near = np.abs(X).max(axis=1) < 2.5
    low, high = model.predict_interval(X[is_near], 0.8).T
    assert np.mean((low <= y[is_near]) & (y[is_near] <= high)) > 0.6


def test_mixed_laws_are_as_wide_as_the_errors_of_their_mixture():
    """Two laws that err independently, each as wide as its errors: the mean of both errs less."""
    rng = np.random.default_rng(0)
    y = 0.1 * rng.normal(size=(2000, 1))
    laws = []
    for _ in range(2):
        means = rng.normal(size=(1, 2000, 1))
        rows = HonestRows(np.zeros((2000, 1)), y, means, np.full(means.shape, 1.01), np.ones(1))
        laws.append(Recalibrated.of(None, rows, np.ones_like(y)))
    factor = pooled_factor(laws, np.array([0.5, 0.5]))
    assert factor < 0.8
    assert pooled_factor([laws[0], laws[0]], np.array([0.5, 0.5])) == pytest.approx(1.0, abs=0.05)


def test_a_width_by_inputs_is_kept_only_where_it_helps_on_other_rows():
    """Normal errors of one width at inputs of no relevance: laws of new rows are hardly worse than without it."""
    problem = problem_of(np.zeros((130, 8)))
    losses = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, errors = rng.normal(size=(130, 8)), rng.normal(size=(130, 1))
        rows = HonestRows(X, errors, np.zeros((1, 130, 1)), np.ones((1, 130, 1)), np.ones(1))
        with computing():
            found = calibrate(rows, functools.partial(gp_for, problem), seed)
            new = np.ones((400, 1)) if found is None else predictive_scales(found, rng.normal(size=(400, 8)))
        # The expected log density of standard normal errors under a law that is s times as wide.
        losses.append(np.mean(np.log(new) + 0.5 / new**2 - 0.5))
    assert np.mean(losses) < 0.03 and max(losses) < 0.1


def test_one_row_that_is_far_off_costs_little_of_a_table():
    """Forty deviations, where no error was above four: a normal law would lose 800 nats."""
    errors = 0.5 * np.random.default_rng(0).normal(size=(300, 1))
    groups = np.repeat(np.arange(100), 3)  # too few for a width by inputs
    rows = HonestRows(
        np.zeros((300, 1)), errors, np.zeros((1, 300, 1)), np.ones((1, 300, 1)), np.ones(1), groups=groups
    )
    found = recalibrated_rows(rows, no_gp, 0)
    far = dataclasses.replace(found, rows=dataclasses.replace(rows, y=np.full((300, 1), 20.0)))
    assert found.calibration is not None and found.calibration.tail_share.sum() < 0.05
    assert far.log_densities()[0] > -50.0
    assert found.log_densities().mean() == pytest.approx(scipy.stats.norm.logpdf(errors, scale=0.5).mean(), abs=0.02)


def test_targets_without_errors_are_no_reason_to_recalibrate():
    """A constant column is predicted exactly: no scale of its own leaves the range of scales, and none is zero."""
    rng = np.random.default_rng(0)
    y = np.hstack([np.zeros((50, 1)), 2.0 * rng.normal(size=(50, 1))])
    rows = HonestRows(np.zeros((50, 1)), y, np.zeros((1, 50, 2)), np.ones((1, 50, 2)), np.ones(1))
    found = calibrate(rows, no_gp, 0)
    assert found is None or (found.scale >= SCALES[0]).all()
    broken = dataclasses.replace(rows, means=np.full((1, 50, 2), np.nan))
    assert calibrate(broken, no_gp, 0) is None


def test_rows_that_decide_their_own_prediction_are_left_out():
    """Without noise, and with as many inducing points as rows, a prediction without the row is rounding for some."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    model = wf.SparseGPRegressor(random_state=0).fit(X, y)
    X = rng.uniform(-1.0, 1.0, (500, 3))
    found = model.diagnose(X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2])
    assert found.coverage[0.8] > 0.6


@pytest.mark.parametrize(("n_rows", "n_members"), [(41, 5), (65, 2)])
def test_members_have_one_shape_whatever_the_number_of_rows(n_rows, n_members):
    """Folds of these sizes have other size classes."""
    X, y = funnel(n_rows)
    model = wf.SparseGPRegressor(n_members=n_members, max_iter=3, random_state=2**32 - 1).fit(X, y)
    assert np.isfinite(model.log_prob(X, y)).all()


def test_only_normal_components_are_recalibrated():
    X, y = funnel(60)
    assert wf.SparseGPRegressor(likelihood="student_t", **QUICK).fit(X, y).calibration_ is None
    assert wf.SparseGPRegressor(preset="paper", n_inducing=5, max_iter=2).fit(X, y).calibration_ is None


def test_two_targets_have_scales_of_their_own():
    X, y = funnel(200)
    both = np.column_stack([y, np.cos(X[:, 0]) + 0.1 * np.random.default_rng(3).normal(size=200)])
    model = wf.SparseGPRegressor(n_members=2, **QUICK).fit(X, both)
    mean, sd = model.predict(X[:4], return_std=True)
    assert mean.shape == sd.shape == (4, 2) and np.isfinite(model.log_prob(X, both)).all()
    assert model.oof_predictions_.shape == (200, 2)


def test_an_unknown_recalibration_is_refused():
    with pytest.raises(OptionError, match="calibrate='always' given; expected 'auto' or None"):
        wf.SparseGPRegressor(calibrate="always").fit(*funnel(20))


# --- members -------------------------------------------------------------------------------------


def test_folds_are_of_equal_size_and_need_rows():
    counts = np.bincount(folds_of(103, 5, 0))
    assert counts.sum() == 103 and counts.max() - counts.min() <= 1
    with pytest.raises(DataError, match="n_members=5 given for 9 rows"):
        wf.SparseGPRegressor(n_members=5).fit(*funnel(9))


def test_out_of_fold_predictions_are_those_of_fits_without_the_row(members):
    """Of rows whose targets are changed, the prediction of the fold changes in other folds alone."""
    X, y = funnel(200)
    folds = folds_of(200, 3, members.seed_)
    k = int(folds[5])
    others = members.members_["sparse GP"][k]
    alone = wf.SparseGPRegressor(calibrate=None, **QUICK).fit(X, y)
    alone.model_ = others
    np.testing.assert_allclose(members.oof_predictions_[folds == k], alone.predict(X[folds == k]), rtol=1e-9)
    np.testing.assert_allclose(members.oof_log_prob_[folds == k], alone.log_prob(X, y)[folds == k], rtol=1e-9)


def test_a_fit_of_one_member_forgets_the_members_of_an_earlier_fit():
    X, y = funnel(60)
    model = wf.SparseGPRegressor(n_members=2, **QUICK).fit(X, y)
    again = model.set_params(n_members=1).fit(X, y)
    assert not hasattr(again, "members_") and not hasattr(again, "oof_log_prob_")
    np.testing.assert_array_equal(again.predict(X), wf.SparseGPRegressor(**QUICK).fit(X, y).predict(X))


def test_a_flow_is_mixed_with_a_sparse_gp_where_rows_can_weigh_them(mixed):
    assert set(mixed.weights_) == {"flow", "sparse GP"} and sum(mixed.weights_.values()) == pytest.approx(1.0)
    assert not hasattr(mixed, "oof_log_prob_") and mixed.mean_covariance([[0.0]]).shape == (1, 1, 1)
    X, y = funnel(60)
    few = wf.FlowRegressor(n_steps=2, **QUICK).fit(X, y)
    gp = wf.SparseGPRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(few.log_prob(X, y), gp.log_prob(X, y), rtol=1e-9)


def test_weights_maximise_the_density_of_the_mixture():
    rng = np.random.default_rng(0)
    densities = {"a": rng.normal(size=3000), "b": rng.normal(size=3000) - 0.3}
    found = _weights(densities)
    grid = np.linspace(0.001, 0.999, 999)
    totals = [np.logaddexp(densities["a"] + np.log(w), densities["b"] + np.log1p(-w)).sum() for w in grid]
    totals += 0.5 * PRIOR_ROWS * (np.log(grid) + np.log1p(-grid))
    assert found["a"] == pytest.approx(grid[int(np.argmax(totals))], abs=0.01)
    assert _weights({"a": densities["a"], "b": densities["a"] - 50.0}) == {"a": 1.0}
    # Few rows say little: the better candidate does not get all the weight.
    assert _weights({"a": densities["a"][:10], "b": densities["a"][:10] - 50.0})["b"] > 0.3


@pytest.mark.parametrize("name", ["recalibrated", "members", "mixed"])
def test_files_and_pickles_keep_the_law(name, request, tmp_path):
    model = request.getfixturevalue(name)
    X, y = funnel(20, seed=2)
    model.save(tmp_path / "model")
    for again in (wf.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.log_prob(X, y), model.log_prob(X, y))
        np.testing.assert_array_equal(again.sample_y(X, 3), model.sample_y(X, 3))


@pytest.mark.filterwarnings("error::UserWarning")
def test_counts_have_intervals_of_whole_numbers_and_a_pit_all_the_same():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (300, 1))
    y = rng.poisson(0.3, 300).astype(float)
    found = (
        wf.SparseGPRegressor(likelihood="poisson", n_inducing=5, max_iter=100, random_state=0).fit(X, y).diagnose(X, y)
    )
    assert scipy.stats.kstest(found.pit[:, 0], "uniform").statistic < 0.1
    assert found.coverage[0.8] >= 0.8


@pytest.mark.slow
def test_flows_and_sparse_gps_are_mixed():
    X, y = funnel(150)
    model = wf.FlowRegressor(n_members=2, n_predict_samples=10, **QUICK).fit(X, y)
    assert set(model.weights_) <= {"flow", "flow without noise", "sparse GP"}
    assert sum(model.weights_.values()) == pytest.approx(1.0)
    assert "2 members, weights of candidates" in model.status_
    assert model.mean_covariance(X[:2]).shape == (2, 1, 1)
    assert model.predict_components(X[:3])[0].shape[1] == 3
    labels = wf.FlowClassifier(n_members=2, n_predict_samples=4, **QUICK).fit(X, y > 0)
    np.testing.assert_allclose(labels.predict_proba(X[:5]).sum(1), 1.0)
    assert labels.oof_predictions_.shape == (150, 2)
    many = wf.fit_many([wf.SparseGPRegressor(n_members=2, **QUICK)], [(X, y)])[0]
    assert len(many.members_["sparse GP"]) == 2


# --- diagnosis -----------------------------------------------------------------------------------


def test_a_law_that_fits_has_a_flat_histogram_and_no_warning(recalibrated):
    X, y = funnel(1000, seed=4)
    found = recalibrated.diagnose(X, y)
    assert found.warnings == () and found.histogram.sum() == 1000
    assert scipy.stats.kstest(found.pit[:, 0], "uniform").statistic < 0.08
    assert found.log_density == pytest.approx(recalibrated.log_prob(X, y).mean())
    assert found.rmse == pytest.approx(np.sqrt(np.mean((recalibrated.predict(X) - y) ** 2)))
    low, high = recalibrated.predict_interval(X, 0.8).T
    assert found.width[0.8] == pytest.approx(np.mean(high - low), rel=1e-6)
    assert found.coverage[0.8] == pytest.approx(np.mean((low <= y) & (y <= high)), abs=1e-9)
    assert "80% intervals contain" in str(found)
    axes = found.plot()
    assert [ax.get_title() for ax in axes] == ["Probability integral transform", "Coverage"]


def test_a_law_that_is_too_narrow_is_called_so(recalibrated):
    X, y = funnel(300, seed=5)
    mean = recalibrated.predict(X)
    with pytest.warns(UserWarning, match="over-confident: "):
        found = recalibrated.diagnose(X, mean + 3.0 * (y - mean))
    assert len(found.warnings) == 3


def test_errors_of_several_targets_are_whitened():
    """Correlated targets of one noise: the predictive covariance of a sparse GP has none of it, and says so."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (120, 1))
    noise = rng.normal(size=(120, 1))
    y = np.hstack([X + 0.3 * noise, X - 0.3 * noise])
    found = wf.SparseGPRegressor(calibrate=None, **QUICK).fit(X, y).diagnose(X, y)
    assert found.correlation[0, 1] < -0.9 and found.whitened_correlation.shape == (2, 2)


@pytest.mark.parametrize("likelihood", ["student_t", "poisson"])
def test_extreme_quantiles_are_where_the_distribution_function_says(likelihood):
    """Beyond 40 standard deviations near two degrees of freedom, and of counts beyond 2⁵³."""
    X = np.linspace(0.0, 1.0, 30)[:, None]
    rng = np.random.default_rng(0)
    if likelihood == "student_t":
        spec = wf.likelihoods.StudentT(dof=2.05)
        y = X[:, 0] + 0.1 * rng.standard_t(2.05, 30)
        levels = [1e-9, 0.5, 1.0 - 1e-9]
    else:
        spec, y, levels = likelihood, rng.poisson(1e17, 30).astype(float), [0.1, 0.9]
    model = wf.SparseGPRegressor(likelihood=spec, n_inducing=5, max_iter=5, random_state=0).fit(X, y)
    quantiles = model.predict_quantiles(X[:1], levels)[0]
    assert np.isfinite(quantiles).all() and (np.diff(quantiles) > 0).all()
    with computing():
        law, Z = model._law(), model._scaled(X[:1])
        found = [float(predictive_cdf(law, Z, model.y_scaler_.forward(np.array([[q]])), 0, 1)[0, 0]) for q in quantiles]
    np.testing.assert_allclose(found, levels, rtol=1e-3)


# --- rows that belong together -------------------------------------------------------------------


def with_copies(n=60, n_copies=5, seed=0):
    """Each row several times, with its target."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return np.repeat(X, n_copies, axis=0), np.repeat(y, n_copies)


def covered(model, seed=1):
    """How often 90 % intervals of new rows hold the target."""
    X, y = with_copies(500, 1, seed)
    low, high = model.predict_interval(X, 0.9).T
    return np.mean((low <= y) & (y <= high))


@pytest.mark.parametrize("n_members", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_copies_of_rows_do_not_make_intervals_narrow(n_members, monkeypatch):
    """A model follows copies; predicted from its own copies, each row then seems to be known."""
    X, y = with_copies()
    options = {"n_inducing": 60, "random_state": 0, "n_members": n_members}
    model = wf.SparseGPRegressor(**options).fit(X, y)
    named = wf.SparseGPRegressor(**options).fit(X, y, groups=[f"row {x[0]}" for x in X])
    np.testing.assert_array_equal(named.predict_interval(X[:5]), model.predict_interval(X[:5]))
    monkeypatch.setattr("wishflow.regression.data.LEAST_DISTINCT", 1000)
    leaky = wf.SparseGPRegressor(**options).fit(X, y)
    assert covered(leaky) < 0.5 and covered(model) > 0.75


@pytest.mark.parametrize(("n_groups", "is_enough"), [(3, False), (29, False), (30, True)])
def test_groups_not_rows_are_counted_before_a_law_is_recalibrated(n_groups, is_enough):
    """Errors of a group are equal, and four times as large as the law says: three subjects say little of a scale."""
    errors = 4.0 * np.repeat(np.random.default_rng(0).normal(size=(n_groups, 1)), 20, axis=0)
    shape, groups = (1, *errors.shape), np.repeat(np.arange(n_groups), 20)
    rows = HonestRows(np.zeros(errors.shape), errors, np.zeros(shape), np.ones(shape), np.ones(1), groups=groups)
    assert (calibrate(rows, no_gp, 0) is not None) == is_enough


def test_leaving_a_group_out_is_conditioning_on_the_other_groups():
    from wishflow.regression.batches import padded_batch
    from wishflow.regression.collapsed import optimal_posterior

    with computing():
        X, y = funnel(30)
        model = wf.SparseGPRegressor(n_inducing=8, max_iter=5, random_state=0, calibrate=None).fit(X, y)
        Xs, ys = model.x_scaler_.forward(X), model.y_scaler_.forward(y[:, None])
        groups = np.where(np.arange(30) < 20, np.arange(30) % 4, np.arange(30))
        means, variances, is_known = leave_one_out(model.model_, Xs, ys, groups)
        assert is_known.all()
        trained = jax.tree.map(jax.numpy.asarray, model.model_)
        for n in (0, 7, 29):
            others = groups != groups[n]
            q = optimal_posterior(trained, padded_batch(Xs[others], ys[others]))
            gp = dataclasses.replace(trained.output, posterior=q).conditioned()
            mean, variance = gp.marginals(jax.numpy.asarray(Xs[n : n + 1]))
            np.testing.assert_allclose(means[n], mean[0], rtol=1e-8)
            np.testing.assert_allclose(variances[n], variance[0] + trained.likelihood.variance, rtol=1e-8)


def test_a_group_whose_removal_leaves_rounding_has_no_prediction():
    """Without noise, and without the rows of a large group, most directions are known by rounding alone."""
    with computing():
        X, y = funnel(30)
        model = wf.SparseGPRegressor(n_inducing=8, max_iter=5, random_state=0, calibrate=None).fit(X, y).model_
        model = eqx.tree_at(lambda m: m.likelihood.noise, model, Positive.of(np.full(1, 1e-25), 1e-30))
        groups = np.where(np.arange(30) < 28, 0, 1)
        means, _, is_known = leave_one_out(model, X, y[:, None], groups)
    np.testing.assert_array_equal(is_known, groups == 1)
    assert np.isfinite(means[is_known]).all()


def test_folds_and_held_back_rows_hold_whole_groups():
    groups = np.random.default_rng(0).integers(12, size=150)
    folds, is_held = folds_of(150, 4, 0, groups), held_back(150, 0.2, 0, groups)
    for group in range(12):
        assert len(set(folds[groups == group])) == len(set(is_held[groups == group])) == 1
    counts = np.bincount(folds)
    assert counts.max() - counts.min() <= np.bincount(groups).max() and 30 <= is_held.sum() <= 50
    large = np.repeat([0, 1], [100, 50])  # each is more than a third of the rows: the smallest is held back
    np.testing.assert_array_equal(held_back(150, 0.1, 0, large), large == 1)
    with pytest.raises(DataError, match="n_members=3 given for 2 groups of rows"):
        folds_of(150, 3, 0, large)
    assert np.bincount(folds_of(100, 2, 0, np.repeat([0, 1], [98, 2]))).tolist() == [98, 2]
    with pytest.raises(DataError, match=r"one group holds 99 of 100 rows, which leaves 1 .* add rows of other"):
        folds_of(100, 2, 0, np.repeat([0, 1], [99, 1]))


def test_rows_with_equal_inputs_are_a_group_unless_they_are_few():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    assert groups_of(X) is None and groups_of(X, np.arange(40)) is None
    twice = groups_of(np.concatenate([X, X]))
    np.testing.assert_array_equal(twice[:40], twice[40:])
    assert len(np.unique(twice)) == 40
    assert groups_of(np.array([[0.0], [-0.0], *np.arange(1.0, 40.0)[:, None]]))[:2].tolist() == [0, 0]
    table = rng.integers(5, size=(200, 2)).astype(float)  # 25 cells
    assert groups_of(table) is None and groups_of(table, table[:, 0]) is not None


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (np.zeros(20), r"groups has one label for all rows \(0.0\)"),
        (np.arange(19), r"groups has shape \(19,\) for 20 rows"),
        ([None, *range(19)], "groups has 1 missing label"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups, said):
    with pytest.raises(DataError, match=said):
        wf.SparseGPRegressor(**QUICK).fit(*funnel(20), groups=groups)


def test_groups_are_routed_by_scikit_learn():
    X, y = funnel(40)
    labels = np.arange(40) // 4
    with sklearn.config_context(enable_metadata_routing=True):
        model = wf.SparseGPRegressor(**QUICK).set_fit_request(groups=True)
        piped = make_pipeline(StandardScaler(), model).fit(X, y, groups=labels)
    alone = wf.SparseGPRegressor(**QUICK).fit(StandardScaler().fit_transform(X), y, groups=labels)
    np.testing.assert_array_equal(piped[-1].predict_interval(X), alone.predict_interval(X))
