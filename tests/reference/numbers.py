"""Numbers of a fitted estimator that no change of structure may move: predictions, objectives and their gradients, and
the parameters after five steps, all in float64 with given draws.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wishflow.files import flatten_arrays
from wishflow.numerics.devices import compiled, computing
from wishflow.regression.batches import padded_batch
from wishflow.regression.collapsed import collapsed_bound, optimal_posterior
from wishflow.regression.steps import RowSteps
from wishflow.series import updating
from wishflow.series.batches import series_batch
from wishflow.series.steps import SeriesSteps
from wishflow.training import chunk

N_STEPS = 5
RATE, NATURAL_RATE, KL_WEIGHT = 1e-3, 0.1, 0.7


def of_regression(estimator: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Of training of a regressor or classifier."""
    found: dict[str, np.ndarray] = {}
    targets = np.searchsorted(estimator.classes_, y) if hasattr(estimator, "classes_") else y
    targets = np.asarray(targets, float).reshape(len(y), -1)
    with computing():
        batch = padded_batch(estimator._scaled(X), estimator.y_scaler_.forward(targets))
    for average, is_natural in (("log", False), ("density", True)):
        steps = RowSteps(2, "float64", is_natural, average, len(batch.X))
        found |= _trained(average, estimator.model_, batch, steps)
    if not hasattr(estimator.model_, "field") and hasattr(estimator.model_.likelihood, "noise"):
        with computing():
            found["collapsed"] = np.asarray(collapsed_bound(_on_device(estimator.model_), batch))
            found |= _flat("optimal", optimal_posterior(_on_device(estimator.model_), batch))
    return found


def predictions(estimator: Any, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    found = {"log_prob": estimator.log_prob(X, y)}
    if hasattr(estimator, "classes_"):
        return found | {"predict_proba": estimator.predict_proba(X)}
    mean, std = estimator.predict(X, return_std=True)
    quantiles = estimator.predict_quantiles(X[:5], [0.1, 0.7])
    return found | {"mean": mean, "std": std, "quantiles": quantiles, "draws": estimator.sample_y(X[:5], 3)}


def forecasts(forecaster: Any, y: Any) -> dict[str, np.ndarray]:
    fh = [1, 3] if forecaster.freq_ is not None else [forecaster.end_ + np.timedelta64(90, "m")]
    draws = forecaster.forecast(fh, n_draws=4)
    found = {"log_prob": forecaster.log_prob(y).to_numpy()}
    for key, forecast in (draws if forecaster.is_panel_ else {None: draws}).items():
        seen = forecast.samples.values[0] * 1.01
        found[f"forecast.{key}"] = forecast.samples.values
        found[f"density.{key}"] = forecast.log_prob(seen).to_numpy()
    rates = forecaster.covariance(y)
    for key, rate in (rates if forecaster.is_panel_ else {None: rates}).items():
        found[f"covariance.{key}"] = rate.values
    return found


def of_forecasting(forecaster: Any) -> dict[str, np.ndarray]:
    """Of training of a forecaster."""
    found: dict[str, np.ndarray] = {}
    spec, units = forecaster.spec_, forecaster.units_
    ticks = [part for tail in forecaster.reservoir_.values() for part in units.ticks(tail)]
    is_latent = spec.latent is not None
    with computing():
        batch = series_batch(*updating.scored_items(ticks, spec))
    for average in ("log", "density"):
        steps = SeriesSteps(2, "float64", False, average, 512, 32, spec.objective, is_latent)
        found |= _trained(average, forecaster.model_, batch, steps)
    return found


def _trained(name: str, model: Any, batch: Any, steps: Any) -> dict[str, np.ndarray]:
    """The objective, its parts and gradient, and the model after five steps."""
    with computing():
        model, key = _on_device(model), jax.random.key(11)
        value, parts, gradient = _value_and_gradient(model, batch, key, steps)
        one = jnp.zeros(chunk.CHUNK)
        rates = chunk.Rates(one + RATE, one + NATURAL_RATE, one + KL_WEIGHT)
        state, _ = chunk.train_chunk(chunk.start_state(model, key, steps), batch, rates, jnp.asarray(N_STEPS), steps)
        found = {f"{name}.value": np.asarray(value)}
        found |= {f"{name}.part.{part}": np.asarray(number) for part, number in parts.items()}
        return found | _flat(f"{name}.gradient", gradient) | _flat(f"{name}.after", state.model)


@compiled
def _value_and_gradient(model, batch, key, steps):
    def loss(model):
        value, (parts, _) = steps.loss(model, batch, key, KL_WEIGHT)
        return value, parts

    (value, parts), gradient = jax.value_and_grad(loss, has_aux=True)(model)
    return value, parts, gradient


def _on_device(model: Any) -> Any:
    return jax.tree.map(jnp.asarray, model)


def _flat(name: str, tree: Any) -> dict[str, np.ndarray]:
    return {f"{name}.{leaf}": np.asarray(value) for leaf, value in flatten_arrays(tree).items()}
