"""A drift with a posterior: its penalty, its law at one place and along a path, and what it does to predictions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from jax import random

import wishflow as wf
from wishflow import wishart
from wishflow.errors import OptionError
from wishflow.inducing import POSTERIORS, InducingBasis
from wishflow.kernels import RBF, build
from wishflow.numerics.parameters import Positive
from wishflow.regression import objectives
from wishflow.regression.flow import FlowModel
from wishflow.regression.specs import FlowSpec
from wishflow.series import gaussian_filter
from wishflow.series.autoregressive import Start
from wishflow.series.autoregressive import build as build_series
from wishflow.series.batches import SeriesBatch, TransitionBatch
from wishflow.series.layout import Layout
from wishflow.series.objectives import negative_transition_objective
from wishflow.series.specs import DynamicsSpec
from wishflow.wishart.specs import Diagonal, GPDiffusion, NoDiffusion, Wishart

DIM, N_INDUCING = 2, 7
SPECS = {"wishart": Wishart(rank=2, posterior="rotated"), "diagonal": Diagonal(), "none": NoDiffusion()}
QUICK = {"n_inducing": 15, "max_iter": 40, "random_state": 0, "validation_fraction": 0.0}


def field_of(name):
    """A field with a drift posterior far from its prior and, where there is one, a rotation away from the identity."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(N_INDUCING, DIM))
    basis = InducingBasis.of(build(RBF(), DIM, variance=1.3, lengthscale=1.5), Z, 1e-8)
    field = wishart.build(SPECS[name], basis, DIM, random.key(0), drift_posterior="gaussian")
    mean, logs = (jnp.asarray(rng.normal(size=(DIM, N_INDUCING))) for _ in range(2))
    field = eqx.tree_at(lambda f: (f.gp.mean, f.gp.log_variances), field, (mean, logs))
    if name == "wishart":
        below = jnp.asarray(rng.normal(size=(N_INDUCING, N_INDUCING)))
        field = eqx.tree_at(lambda f: f.noise.posterior.below, field, below)
    return field


@pytest.mark.parametrize("name", SPECS)
def test_the_penalty_is_the_divergence_of_the_posterior_from_its_prior(name):
    field = field_of(name)
    q = POSTERIORS["diagonal"].prior(DIM, N_INDUCING)
    q = eqx.tree_at(lambda q: (q.mean, q.log_variances), q, (field.gp.mean, field.gp.log_variances))
    np.testing.assert_allclose(field.kl()["kl_drift"], jnp.sum(q.kl()), rtol=1e-12)
    assert field.gp.has_posterior and field.has_drift_posterior


@pytest.mark.parametrize("name", SPECS)
def test_a_draw_has_the_marginal_law_of_the_posterior(name):
    """Against a dense form without rotations: variances aᵀ Q diag(λ) Qᵀ a + k − aᵀa."""
    field = field_of(name)
    X = jnp.asarray(np.random.default_rng(1).normal(size=(4, DIM)))
    a = field.basis.prepare().project(X)
    Q = jnp.eye(N_INDUCING) if field.noise is None else field.noise.rotation()
    S = jnp.einsum("mk,dk,lk->dml", Q, jnp.exp(field.gp.log_variances), Q)
    unexplained = field.basis.prepare().unexplained(X, a)
    variances = jnp.einsum("nm,dml,nl->nd", a, S, a) + unexplained[:, None]
    prepared = field.prepare()
    here = prepared.at(X)
    np.testing.assert_allclose(here.drift, a @ field.gp.mean.T, atol=1e-10)
    np.testing.assert_allclose(here.drift_variances, variances, rtol=1e-6)
    keys = random.split(random.key(1), 20_000)
    for own in (False, True):
        draws = jax.vmap(lambda k, own=own: prepared.drawn(k, 4, own).at(X).drift)(keys)
        np.testing.assert_allclose(draws.mean(0), here.drift, atol=0.06)
        np.testing.assert_allclose(draws.var(0), variances, rtol=0.08)


def test_one_function_drawn_with_J_has_the_covariance_of_the_posterior():
    """With J drawn pathwise rows are not rotated; at inducing points nothing is left unexplained."""
    field = field_of("wishart")
    X = field.basis.Z[:3]
    a = field.basis.prepare().project(X)
    Q = field.noise.rotation()
    expected = a @ Q @ jnp.diag(jnp.exp(field.gp.log_variances[0])) @ Q.T @ a.T
    draws = jax.vmap(lambda k: field.draw(k).drawn(k, 3, False).at(X).drift[:, 0])(random.split(random.key(2), 20_000))
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.06 * float(jnp.max(jnp.abs(expected))))


def test_without_variances_and_at_inducing_points_it_is_the_point_drift():
    field = field_of("none")
    still = eqx.tree_at(lambda f: f.gp.log_variances, field, jnp.full((DIM, N_INDUCING), -60.0))
    X = field.basis.Z
    drawn = still.prepare().drawn(random.key(0), N_INDUCING, False).at(X).drift
    np.testing.assert_allclose(drawn, field.prepare().at(X).drift, atol=1e-3)


def test_a_path_keeps_its_function(types_unchecked):
    """A flow without noise whose drift is drawn: two steps of one draw, by hand."""
    assert FlowSpec(diffusion=NoDiffusion(), drift_posterior="gaussian").is_stochastic
    assert not FlowSpec(diffusion=NoDiffusion()).is_stochastic
    X = jnp.asarray(np.random.default_rng(3).normal(size=(3, DIM)))
    model = FlowModel(None, None, field_of("none"), 1.0, 2, False, True)
    drawn = model._prepared(random.split(random.key(4))[0], X.dtype, 3)
    half = X + 0.5 * drawn.at(X).drift
    np.testing.assert_allclose(model.carry(X, random.key(4)), half + 0.5 * drawn.at(half).drift, rtol=1e-10)


# --- series --------------------------------------------------------------------------------------


def series_model():
    layout, rng = Layout(DIM, 1, 0), np.random.default_rng(5)
    spec = DynamicsSpec(drift="gp", diffusion=Diagonal(), drift_posterior="gaussian")
    start = Start(np.zeros((DIM, DIM)), np.zeros(DIM), np.diag([0.5, 0.8]))
    model = build_series(spec, layout, start, rng.normal(size=(6, DIM)), random.key(0))
    values = jnp.asarray(rng.normal(size=(DIM, 6)))
    changed = (values, 0.3 * values, Positive.of(np.array([1.5, 0.7])))
    return eqx.tree_at(lambda m: (m.field.gp.mean, m.field.gp.log_variances, m.field.gp.amplitude), model, changed)


def transitions_of(n=5, h=0.5):
    rng = np.random.default_rng(6)
    return TransitionBatch(
        X=jnp.asarray(rng.normal(size=(n, DIM))),
        increment=jnp.asarray(rng.normal(size=(n, DIM))),
        h=jnp.full(n, h),
        weights=jnp.ones(n),
        n_data=jnp.asarray(float(n)),
    )


def test_a_step_has_the_drift_integrated_out_or_its_mean_of_logs():
    """Λ alone: log N(Δ; hμ, hΛ + h²s²), and the mean over f of log N(Δ; hf, hΛ) = log N(Δ; hμ, hΛ) − ½ h s²/Λ."""
    model, batch = series_model(), transitions_of()
    here, h = model.field.in_parts().at(batch.X), batch.h[:, None]
    white, variances = h * here.white, here.drift_variances
    integrated = scipy.stats.norm(h * here.drift, np.sqrt(white + h**2 * variances)).logpdf(batch.increment).sum()
    whole = SeriesBatch(batch, None)

    def fit(average, n_samples):
        parts = negative_transition_objective(model, whole, random.key(7), n_samples=n_samples, average=average)[1]
        return float(parts["fit"])

    assert fit("density", 1) == pytest.approx(integrated, rel=1e-8)
    given_mean = scipy.stats.norm(h * here.drift, np.sqrt(white)).logpdf(batch.increment).sum()
    expected = given_mean - 0.5 * float(jnp.sum(h**2 * variances / white))
    assert fit("log", 40_000) == pytest.approx(expected, rel=0.02)


def test_a_belief_grows_by_the_variance_of_the_drift():
    model, batch = series_model(), transitions_of()
    field = model.field.in_parts()
    belief = gaussian_filter.Belief.start(batch.X, jnp.zeros_like(batch.X), model.layout)
    after = gaussian_filter.predict(random.key(0), field, belief, batch.h, jnp.zeros((5, 0))).belief
    here = field.at(batch.X)
    expected = batch.h[:, None] * here.white + batch.h[:, None] ** 2 * here.drift_variances
    np.testing.assert_allclose(jnp.diagonal(after.covariance, axis1=1, axis2=2), expected, rtol=1e-10)


@pytest.mark.slow
def test_a_forecaster_with_a_drift_posterior_is_fitted_saved_and_forecasts(tmp_path):
    rng = np.random.default_rng(0)
    y = pd.DataFrame(np.cumsum(rng.normal(size=(80, 2)), 0) * 0.1, columns=["a", "b"])
    options = {"lags": 1, "calendar": False, "transform": None, "rank": 2, "n_inducing": 10, "max_iter": 20}
    model = wf.WishartForecaster(drift_posterior="gaussian", random_state=0, **options).fit(y)
    model.save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    ours, theirs = (m.predict(fh=[1, 2, 3]) for m in (model, again))
    assert np.isfinite(ours.to_numpy()).all()
    np.testing.assert_array_equal(ours, theirs)


# --- estimators ----------------------------------------------------------------------------------


def test_a_flow_that_is_one_random_sde_with_a_drift_posterior_has_a_bound():
    training = dataclasses.replace(wf.FlowRegressor()._training(1000, 3), path_average="log")
    spec = FlowSpec(sampling="pathwise", drift_posterior="gaussian")
    assert objectives.is_bound(spec, training)
    assert not objectives.is_bound(dataclasses.replace(spec, drift_posterior="point"), training)
    assert not objectives.is_bound(dataclasses.replace(spec, sampling="marginal"), training)


@pytest.mark.slow
@pytest.mark.parametrize("diffusion", ["wishart", "none"])
def test_a_flow_with_a_drift_posterior_is_fitted_saved_and_has_random_paths(diffusion, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (60, 1))
    y = np.sin(3.0 * X[:, 0]) + 0.05 * rng.normal(size=60)
    model = wf.FlowRegressor(diffusion=diffusion, drift_posterior="gaussian", calibrate=None, **QUICK).fit(X, y)
    assert model.model_.field.gp.has_posterior and "kl_drift" in model.history_
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(wf.load(tmp_path / "model").predict(X[:5]), model.predict(X[:5]))
    means, _ = model.predict_components(X[:2])
    assert model.flow_paths(X[:2]).shape[1:] == (2, 1) and (means.std(0) > 0.0).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [({"drift_posterior": "map"}, "'map'"), ({"drift_posterior": "gaussian", "diffusion": "gp"}, "the 'gp' diffusion")],
)
def test_what_has_no_such_posterior_is_refused(options, text):
    with pytest.raises(OptionError, match=text):
        wf.FlowRegressor(**options).fit(np.arange(5.0)[:, None], np.arange(5.0))


def test_series_without_such_a_posterior_refuse_it():
    with pytest.raises(OptionError, match="the rollout objective"):
        DynamicsSpec(objective="rollout", drift_posterior="gaussian")
    with pytest.raises(OptionError, match="the 'gp' diffusion"):
        DynamicsSpec(diffusion=GPDiffusion(), drift_posterior="gaussian")
