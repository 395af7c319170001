"""Series whose rows know little of each other and whose noise has heavy tails, as daily returns."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_t

import wishflow as wf
from wishflow.errors import TrainingWarning
from wishflow.series import linear_gaussian as linear
from wishflow.series.linear_prior import CONSTANT_MEAN
from wishflow.series.tails_of_steps import student_t_scatter

QUICK = {"n_inducing": 8, "max_iter": 20, "rank": 1, "n_train_samples": 2, "lags": 1, "calendar": False}
SCATTER = np.array([[1.0, 0.8, 0.1], [0.8, 1.5, 0.2], [0.1, 0.2, 2.0]])


def returns(n, dof=3.0, seed=0):
    rows = multivariate_t(np.full(3, 0.05), SCATTER, dof).rvs(n, random_state=seed)
    return pd.DataFrame(rows, pd.bdate_range("2015-01-01", periods=n), list("abc"))


@pytest.fixture(scope="module")
def fitted():
    y = returns(1000)
    return wf.WishartForecaster(**QUICK, random_state=0).fit(y.iloc[:600]), y


def test_scatter_and_degrees_of_freedom_are_those_of_the_rows():
    r = returns(20_000, seed=1).to_numpy()
    r = r - r.mean(axis=0)
    scatter, dof = student_t_scatter(r, np.cov(r.T))
    assert dof == pytest.approx(3.0, rel=0.05)
    np.testing.assert_allclose(scatter, SCATTER, atol=0.06)


def test_outliers_hardly_move_the_scatter():
    r = returns(2000, seed=2).to_numpy()
    outliers = r.copy()
    outliers[:5] *= 50.0
    one, two = (student_t_scatter(rows, np.cov(rows.T))[0] for rows in (r, outliers))
    np.testing.assert_allclose(two, one, rtol=0.05, atol=0.02)


def test_a_prior_around_a_constant_holds_the_weights_of_rows_at_zero():
    y = returns(400).to_numpy()
    rows = linear.Stretch(y, np.ones_like(y, bool), np.zeros((400, 0)))
    fit = linear.fitted([rows], (1, 2), CONSTANT_MEAN)
    assert fit is not None and "constant" in CONSTANT_MEAN.describe()
    means = fit.step(y[None, 10:12], np.zeros((1, 0)))
    np.testing.assert_allclose(means, y[2:].mean(axis=0, keepdims=True), atol=1e-3)


def test_the_density_of_the_next_row_is_that_of_a_constant_student_t(fitted):
    """By the law that the rows were drawn from, which knows more than one that is fitted to them."""
    model, y = fitted
    assert model.spec_.innovations == "student_t" and "Student-t steps" in model.status_
    train, test = y.iloc[:600].to_numpy(), y.iloc[600:]
    scatter, dof = student_t_scatter(train - train.mean(axis=0), np.cov(train.T))
    constant = multivariate_t(train.mean(axis=0), scatter, dof).logpdf(test)
    assert model.log_prob(test).mean() >= constant.mean() - 0.02
    assert "log density" in model.validation_history_


def test_files_updates_and_scenarios_keep_the_tails(fitted, tmp_path):
    model, y = fitted
    model.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    pd.testing.assert_series_equal(again.log_prob(y.iloc[600:700]), model.log_prob(y.iloc[600:700]))
    np.testing.assert_array_equal(again.forecast(3, n_draws=9).samples, model.forecast(3, n_draws=9).samples)
    further = again.update(y.iloc[600:700])
    ahead = further.forecast(3, n_draws=5).samples.values
    given = pd.DataFrame({"a": [3.0]}, pd.bdate_range(y.index[699], periods=2)[1:])
    found = further.forecast(3, n_draws=2000, given=given).samples.values
    assert np.isfinite(ahead).all()
    np.testing.assert_allclose(found[:, 0, 0], 3.0)
    # b moves with a.
    assert np.median(found[:, 0, 1]) > 1.0
    further.update(y.iloc[700:760], update_params=True)
    assert further.spec_.innovations == "student_t" and np.isfinite(further.log_prob(y.iloc[760:])).all()


@pytest.mark.slow
def test_members_may_all_have_heavy_tails():
    y = returns(700)
    model = wf.WishartForecaster(**QUICK, n_members=2).fit(y.iloc[:600])
    assert all(member.spec.innovations == "student_t" for member in model.members_)
    assert np.isfinite(model.log_prob(y.iloc[600:])).all()


def test_a_logarithm_keeps_means_of_forecasts(fitted):
    """The exponential of a Student-t has none: tails are jumps there, or Gaussian."""
    _, y = fitted
    model = wf.WishartForecaster(**QUICK, transform="log").fit(np.exp(0.1 * y.iloc[:600]))
    assert model.spec_.innovations in ("gaussian", "jumps")
    assert not model.validation_history_["candidate"].str.contains("Student").any()


def test_intervals_that_are_far_too_narrow_are_told_of():
    y = returns(600, dof=30.0, seed=3)
    y.iloc[530:] *= 6.0
    with pytest.warns(TrainingWarning, match="80% intervals one step ahead covered"):
        wf.WishartForecaster(**QUICK).fit(y)


def test_honest_intervals_raise_no_warning(fitted):
    _, y = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainingWarning)
        wf.WishartForecaster(**QUICK).fit(y.iloc[:600])
