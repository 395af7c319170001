"""Starting values of models of time series."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ..errors import OptionError
from ..numerics.devices import on_device
from .autoregressive import Start
from .latent import LatentStart
from .linear import lag_penalty
from .specs import DynamicsSpec, chosen_lags
from .windows import ENCODED_ROWS, Series, Transitions, n_substeps

RIDGE = 1e-3
# Of what `lag_penalty` adds; no share of the rows, so that a prior gives way as they get more.
LAG_RIDGE = 25.0


def start_of(whole: Transitions, spec: DynamicsSpec) -> Start:
    """The start of the field, from steps over whole gaps (`whole_gaps`)."""
    start = ridge_start(whole, "linear" in spec.drift, len(chosen_lags(spec.lags)))
    return in_steps(start, int(n_substeps(1.0, spec.step))) if spec.step < 1.0 else start


def ridge_start(transitions: Transitions, has_linear: bool, n_lags: int = 1) -> Start:
    """Regress increments over h on (x, lags, u, 1) with weights h, a small ridge, and the prior of old lags
    (`lag_penalty`); the residuals' covariance rate.

    Without a linear part only the covariance of the increments is kept.
    """
    X, rate, h = transitions.X, transitions.increment / transitions.h[:, None], transitions.h
    design = np.column_stack([X, np.ones(len(X))])
    if not has_linear:
        design = design * 0.0
    weighted = design * h[:, None]
    small = RIDGE * len(X)
    penalty = lag_penalty(rate.shape[1], n_lags if has_linear else 1, X.shape[1])
    ridge = small + LAG_RIDGE * (penalty - 1.0)
    coefficients = _ridge_regressions(weighted.T @ design, weighted.T @ rate, ridge, 1e-6 * small)
    residual = (rate - design @ coefficients) * np.sqrt(h)[:, None]
    covariance = residual.T @ residual / max(len(X), 1)
    # A constant series has no increments at all, and a covariance must have an inverse.
    floor = 1e-8 * max(np.trace(covariance) / len(covariance), 1e-8)
    covariance = covariance + floor * np.eye(len(covariance))
    return Start(*(on_device(part) for part in (coefficients[:-1].T, coefficients[-1], covariance)))


def _ridge_regressions(gram: np.ndarray, moments: np.ndarray, ridge: np.ndarray, of_constant: float) -> np.ndarray:
    """Columns of coefficients, one regression for each column of `moments` with its own row of `ridge`."""
    if np.ptp(ridge) == 0.0:
        return np.linalg.solve(gram + np.diag(np.r_[ridge[0], of_constant]), moments)
    each = [
        np.linalg.solve(gram + np.diag(np.r_[row, of_constant]), column)
        for row, column in zip(ridge, moments.T, strict=True)
    ]
    return np.stack(each, axis=1)


def in_steps(start: Start, n_steps: int) -> Start:
    """The start for a gap that is cut into n Euler steps of length 1/n, from that for one step of length 1.

    n steps with rates W′ and noise Q′ do what one did: Aⁿ = I + W with A = I + W′/n, constants and covariates being
    states that stay, and Σ_k AᵏQ′Aᵏᵀ/n = Q, k < n. A is a principal root; where there is none (a step turns a direction
    round, or forgets it) the start is left as it is.
    """
    dim, n_inputs = start.weights.shape
    whole = np.eye(n_inputs + 1)
    whole[:dim] += np.column_stack([start.weights, start.constant])
    values = np.linalg.eigvals(whole)
    if n_steps == 1 or np.any((values.real <= 0.0) & (np.abs(values.imag) < 1e-6)):
        return start
    root = scipy.linalg.fractional_matrix_power(whole, 1.0 / n_steps)
    rates = n_steps * (np.real(root) - np.eye(n_inputs + 1))[:dim]
    covariance = _noise_of_steps(np.real(root)[:dim, :dim], np.asarray(start.covariance), n_steps)
    return Start(*(on_device(part) for part in (rates[:, :-1], rates[:, -1], covariance)))


def _noise_of_steps(A: np.ndarray, Q: np.ndarray, n_steps: int) -> np.ndarray:
    """Q′ with Σ_k AᵏQ′Aᵏᵀ/n = Q, k < n; Q itself where A has too few eigenvectors or no covariance does that."""
    values, vectors = np.linalg.eig(A)
    products = np.outer(values, values.conj())
    sums = np.mean([products**k for k in range(n_steps)], axis=0)
    if np.linalg.cond(vectors) > 1e6 or np.abs(sums).min() < 1e-6:
        return Q
    inverse = np.linalg.inv(vectors)
    found = np.real(vectors @ (inverse @ Q @ inverse.conj().T / sums) @ vectors.conj().T)
    found = 0.5 * (found + found.T)
    return found if np.linalg.eigvalsh(found).min() > 0.0 else Q


def latent_states(series: list[Series], dim: int) -> tuple[list[Series], np.ndarray]:
    """Where the states of the latent model start, and the projection (dim, rows · P) that makes them of whole rows.

    Principal components, scaled to variance one, of each row where it has at least `dim` entries, otherwise of
    `ENCODED_ROWS` rows side by side (an embedding in time). The series have no holes (`imputed`).
    """
    width = series[0].values.shape[1]
    n_rows = 1 if dim <= width else ENCODED_ROWS
    if dim > n_rows * width:
        raise OptionError(
            f"latent_dim={dim} with {width} series; expected at most {ENCODED_ROWS * width} "
            f"({ENCODED_ROWS} for each of them)."
        )
    embedded = [_embedded(s.values, n_rows) for s in series]
    projection = _projection(np.concatenate(embedded), dim)
    states = [Series(s.times, rows @ projection.T, s.covariates) for s, rows in zip(series, embedded, strict=True)]
    return states, projection


def _embedded(values: np.ndarray, n_rows: int) -> np.ndarray:
    """Each row and those that follow it side by side; the last row stands for what comes after the end."""
    after = np.minimum(np.arange(len(values))[:, None] + np.arange(n_rows), len(values) - 1)
    return values[after].reshape(len(values), -1)


def _projection(rows: np.ndarray, dim: int) -> np.ndarray:
    """From rows to their first `dim` principal components, with variance one."""
    values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
    largest = np.argsort(values)[::-1][:dim]
    # Directions without spread (constant series) are not blown up.
    return (vectors[:, largest] / np.sqrt(np.maximum(values[largest], 1e-4 * values.max()))).T


def latent_start(series: list[Series], states: list[Series], projection: np.ndarray, field: Start) -> LatentStart:
    """The readout by least squares from the states, its white noise from the residuals."""
    x = np.concatenate([s.values for s in states])
    y = np.concatenate([s.values for s in series])
    gram = x.T @ x + RIDGE * len(x) * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ y).T
    white = np.maximum((y - x @ weights.T).var(axis=0), 0.01 * np.maximum(y.var(axis=0), 1e-6))
    return LatentStart(field, *(on_device(part) for part in (projection, weights, white)))
