"""Statements about means of draws, with the standard errors that the draws themselves show."""

from __future__ import annotations

import itertools

import numpy as np


def assert_mean(draws, expected, n_errors: float = 4.0) -> None:
    """The mean over the first axis is `expected`, within n standard errors in every entry."""
    draws, expected = np.asarray(draws), np.asarray(expected)
    error = draws.std(0, ddof=1) / np.sqrt(len(draws))
    rounding = 1e-12 * (1.0 + np.abs(expected))
    away = np.abs(draws.mean(0) - expected) / (error + rounding)
    assert away.max() < n_errors, f"{away.max():.2f} standard errors away:\n{draws.mean(0)}\nexpected\n{expected}"


def assert_moments(draws, mean, covariance, n_errors: float = 4.5) -> None:
    """Mean and covariance of draws (S, K) are the given ones; the mean of the covariance is taken as known."""
    draws = np.asarray(draws)
    centred = draws - np.asarray(mean)
    assert_mean(draws, mean, n_errors)
    assert_mean(centred[:, :, None] * centred[:, None, :], covariance, n_errors)


def monomials(draws, order: int) -> np.ndarray:
    """All products of up to `order` coordinates of draws (S, D): (S, number of products)."""
    draws = np.asarray(draws)
    dims = range(draws.shape[1])
    picks = [p for k in range(1, order + 1) for p in itertools.combinations_with_replacement(dims, k)]
    return np.stack([draws[:, list(pick)].prod(1) for pick in picks], 1)


def assert_same_moments(first, second, order: int = 4, n_errors: float = 4.5) -> None:
    """Two sets of draws (S, D) have the same moments up to `order`, mixed ones too."""
    p, q = monomials(first, order), monomials(second, order)
    error = np.sqrt(p.var(0) / len(p) + q.var(0) / len(q))
    away = np.abs(p.mean(0) - q.mean(0)) / error
    assert away.max() < n_errors, f"moments are {away.max():.2f} standard errors apart"
