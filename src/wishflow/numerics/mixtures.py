"""Weights of laws that are mixed, and how many draws each of them gives."""

from __future__ import annotations

import numpy as np
import scipy.special
from jaxtyping import Float, Int

# Laws of less weight than this are left out; of many laws, those of less than this share of an equal weight.
LEAST_WEIGHT, LEAST_SHARE = 0.02, 0.3
N_STEPS = 500


def mixture_weights(log_densities: Float[np.ndarray, "K N"], prior_rows: float = 0.0) -> Float[np.ndarray, " K"]:
    """Weights that maximise Σ_n log Σ_k w_k p_k(y_n), by the steps of expectation maximisation from equal weights.

    Parameters
    ----------
    log_densities : ndarray of shape (K, N)
        log p_k(y_n) at rows that no law was trained on. Where it is not finite, a law excludes the row.
    prior_rows : float, default=0.0
        How many further rows are taken to be divided equally between the laws: a Dirichlet prior, for few rows.

    Returns
    -------
    ndarray of shape (K,)
        The weights. They sum to one, and weights that are very small are zero.

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.numerics.mixtures import mixture_weights
    >>> mixture_weights(np.log([[0.4, 0.1], [0.1, 0.4], [0.0, 0.0]]))
    array([0.5, 0.5, 0. ])
    """
    n_laws = len(log_densities)
    logs = np.where(np.isfinite(log_densities), log_densities, -1e300)
    w = np.full(n_laws, 1.0 / n_laws)
    for _ in range(N_STEPS if n_laws > 1 and logs.shape[1] else 0):
        with np.errstate(divide="ignore"):
            rows = scipy.special.softmax(logs + np.log(w)[:, None], axis=0).sum(1)
        w = (rows + prior_rows / n_laws) / (logs.shape[1] + prior_rows)
    w = np.where(w < min(LEAST_WEIGHT, LEAST_SHARE / n_laws), 0.0, w)
    return w / w.sum()


def draws_of_each(n_draws: int, weights: Float[np.ndarray, " K"], offset: float = 0.5) -> Int[np.ndarray, " K"]:
    """How many of n draws each law gives: less than one from its weight times n, by systematic sampling.

    n_k = ⌊n W_k + c⌋ − ⌊n W_{k−1} + c⌋ with W_k = w_1 + … + w_k. With c uniform on [0, 1) its mean is n w_k.

    Parameters
    ----------
    n_draws : int
        All draws together.
    weights : ndarray of shape (K,)
        Weights that sum to one.
    offset : float, default=0.5
        The number c.

    Returns
    -------
    ndarray of shape (K,)
        Whole numbers that sum to `n_draws`.

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.numerics.mixtures import draws_of_each
    >>> draws_of_each(10, np.array([0.55, 0.25, 0.2])).tolist()
    [6, 2, 2]
    """
    ends = np.floor(n_draws * np.cumsum(weights) + offset + 1e-9).astype(int)
    ends[-1] = n_draws
    return np.diff(np.minimum(ends, n_draws), prepend=0)
