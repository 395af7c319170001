"""Scores of predictive distributions: log densities, RMSE, CRPS, energy score, variogram score, coverage, intervals.

NumPy arrays in, float64 out. Samples lie on the first axis: targets of shape (N,) go with samples of shape (S, N),
targets of shape (N, P) with (S, N, P). `mean_log_density`, `rmse` and `coverage` are numbers; the other scores come
back for each target, so that they can be averaged over any part of the data. Smaller is better, except for log density
and coverage. CRPS and energy score of samples use the fair estimator, whose expectation does not depend on S.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist
from scipy.special import logsumexp, ndtr

from .errors import DataError, OptionError
from .numerics.arrays import NumPyArray

INVERSE_ROOT_PI = 1.0 / np.sqrt(np.pi)
INVERSE_ROOT_TWO_PI = 1.0 / np.sqrt(2.0 * np.pi)
# What the distances between draws may take in all threads together.
DISTANCE_BYTES = 2**30


def mean_log_density(log_prob: ArrayLike) -> float:
    """Mean of the log densities of the targets.

    Parameters
    ----------
    log_prob : array-like
        Log density of each target, such as `FlowRegressor.log_prob` returns.

    Returns
    -------
    float
        The mean; greater is better.

    Raises
    ------
    DataError
        If `log_prob` is empty.

    Examples
    --------
    >>> from wishflow.metrics import mean_log_density
    >>> mean_log_density([-1.0, -2.0])
    -1.5
    """
    return float(np.mean(_filled("log_prob", log_prob)))


def mixture_log_density(log_densities: ArrayLike) -> Float[NumPyArray, "*shape"]:
    """Log density of the equal mixture of S laws.

    Parameters
    ----------
    log_densities : array-like of shape (S, ...)
        Log densities of the targets under each of the laws.

    Returns
    -------
    ndarray of shape (...)
        Log density of each target under the mixture.

    Raises
    ------
    DataError
        If `log_densities` is empty.

    Notes
    -----
    The mixture has the density p(y) = 1/S Σ_s p_s(y).

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.metrics import mixture_log_density
    >>> np.exp(mixture_log_density(np.log([[0.2, 0.5], [0.4, 0.1]]))).round(1)
    array([0.3, 0.3])
    """
    log_densities = _filled("log_densities", log_densities)
    return logsumexp(log_densities, axis=0) - np.log(len(log_densities))


def moment_matched_log_density(y: ArrayLike, samples: ArrayLike) -> Float[np.ndarray, " N"]:
    """Log density of vector targets under a normal law with the moments of draws.

    It says what the draws tell to second order, for laws without a density of their own. With few draws it is biased:
    use several times as many as there are outputs.

    Parameters
    ----------
    y : array-like of shape (N, P)
        Targets with P outputs.
    samples : array-like of shape (S, N, P)
        Draws from the predictive law of each target, S > P.

    Returns
    -------
    ndarray of shape (N,)
        Log density of each target. NaN where the draws have no regular covariance: an output is the same in all of
        them, or follows from others, or is so far out in some that its square is no number.

    Raises
    ------
    DataError
        If the shapes do not belong together, or there are at most P draws.

    Notes
    -----
    With the mean m and the covariance C of the draws the value is
    log N(y; m, C) = −½ (P log 2π + log|C| + (y − m)ᵀC⁻¹(y − m)).

    Examples
    --------
    >>> import numpy as np
    >>> from wishflow.metrics import moment_matched_log_density
    >>> samples = np.random.default_rng(0).normal(size=(5000, 1, 2))
    >>> moment_matched_log_density(np.zeros((1, 2)), samples).round(1)
    array([-1.8])
    """
    y, samples = _with_samples(y, samples)
    _has_outputs(y)
    size, width = len(samples), y.shape[-1]
    if size <= width:
        raise DataError(f"samples holds {size} draws of {width} outputs; their covariance needs more than {width}.")
    with np.errstate(all="ignore"):  # what overflows or has no spread ends as NaN below
        mean, sd = samples.mean(axis=0), samples.std(axis=0, ddof=1)
        centred = (samples - mean) / sd
        correlation = np.einsum("s...i,s...j->...ij", centred, centred) / (size - 1)
        # Factors of correlations, not of covariances: outputs may differ by many orders of magnitude.
        is_finite = np.isfinite(correlation).all(axis=(-2, -1))
        least = np.linalg.eigvalsh(np.where(is_finite[..., None, None], correlation, np.eye(width)))[..., 0]
        is_regular = is_finite & (least > 1e-12 * width)
        L = np.linalg.cholesky(np.where(is_regular[..., None, None], correlation, np.eye(width)))
        white = np.linalg.solve(L, ((y - mean) / sd)[..., None])[..., 0]
        log_det = 2.0 * np.sum(np.log(sd) + np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)
        found = -0.5 * (width * np.log(2.0 * np.pi) + log_det + np.sum(white**2, axis=-1))
    return np.where(is_regular, found, np.nan)


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error over all targets.

    Parameters
    ----------
    y : array-like
        Targets.
    mean : array-like
        Predictions, of the shape of `y`.

    Returns
    -------
    float
        √ mean (y − mean)²; smaller is better.

    Raises
    ------
    DataError
        If the shapes differ, or the arrays are empty. Shapes are not broadcast.

    Examples
    --------
    >>> from wishflow.metrics import rmse
    >>> rmse([1.0, 2.0], [0.0, 3.0])
    1.0
    """
    y, mean = _same_shape(y=y, mean=mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def crps_samples(y: ArrayLike, samples: ArrayLike) -> Float[NumPyArray, "*shape"]:
    """Continuous ranked probability score from draws.

    Each entry of `y` is scored by itself. The cost is O(S log S) for each of them.

    Parameters
    ----------
    y : array-like
        Targets, of any shape.
    samples : array-like of shape (S, ...)
        Draws from the predictive law of each target: the shape of `y` with one axis more in front, S ≥ 2.

    Returns
    -------
    ndarray
        Score of each target, of the shape of `y`; smaller is better.

    Raises
    ------
    DataError
        If the shapes do not belong together, or there are fewer than two draws.

    See Also
    --------
    crps_gaussian : The score of a normal law.
    crps_gaussian_mixture : The score of a mixture of normal laws, such as that of a flow.
    energy_score : The score of a vector target.

    Notes
    -----
    The fair estimator is used, whose expectation does not depend on S:
    CRPS = 1/S Σ_i |x_i − y| − 1/(2 S(S−1)) Σ_ij |x_i − x_j|. With sorted draws x_(k) the double sum is
    Σ_ij |x_i − x_j| = Σ_k 2 (2k − S − 1) x_(k).

    Examples
    --------
    >>> from wishflow.metrics import crps_samples
    >>> crps_samples([0.0], [[-1.0], [1.0]])
    array([0.])
    """
    y, samples = _with_samples(y, samples)
    # Differences to y, not the draws themselves, enter the weighted sum: its weights add up to 0, so nothing is lost.
    errors = np.sort(samples - y, axis=0)
    size = len(errors)
    weights = (2.0 * np.arange(1, size + 1) - size - 1.0) / (size * (size - 1.0))
    return np.mean(np.abs(errors), axis=0) - np.tensordot(weights, errors, axes=1)


def crps_gaussian(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Float[NumPyArray, "*shape"]:
    """Continuous ranked probability score of normal laws.

    Parameters
    ----------
    y : array-like
        Targets.
    mean : array-like
        Predictive means, of the shape of `y`.
    std : array-like
        Predictive standard deviations, of the shape of `y`, not negative.

    Returns
    -------
    ndarray
        Score of each target, of the shape of `y`; smaller is better.

    Raises
    ------
    DataError
        If the shapes differ, the arrays are empty, or a standard deviation is negative.

    See Also
    --------
    crps_samples : The score from draws.

    Notes
    -----
    CRPS = E|X − y| − ½ E|X − X'| = std (z (2Φ(z) − 1) + 2φ(z) − 1/√π), with z = (y − mean)/std.

    Examples
    --------
    >>> from wishflow.metrics import crps_gaussian
    >>> crps_gaussian([0.0], [0.0], [1.0]).round(1)
    array([0.2])
    """
    y, mean, std = _same_shape(y=y, mean=mean, std=std)
    _not_negative("std", std)
    return _mean_absolute(y - mean, std**2) - std * INVERSE_ROOT_PI


def crps_gaussian_mixture(y: ArrayLike, means: ArrayLike, variances: ArrayLike) -> Float[NumPyArray, "*shape"]:
    """Continuous ranked probability score of equal mixtures of normal laws.

    The law of a target is 1/S Σ_s N(means_s, variances_s). The score is in closed form. Its cost is S² evaluations of Φ
    for each target, its memory that of the inputs.

    Parameters
    ----------
    y : array-like
        Targets, of any shape.
    means : array-like of shape (S, ...)
        Means of the components: the shape of `y` with one axis more in front.
    variances : array-like of shape (S, ...)
        Variances of the components, not negative.

    Returns
    -------
    ndarray
        Score of each target, of the shape of `y`; smaller is better.

    Raises
    ------
    DataError
        If the shapes do not belong together, the arrays are empty, or a variance is negative.

    See Also
    --------
    wishflow.FlowRegressor.predict_components : Means and variances of the components of a prediction.
    crps_samples : The score from draws.

    Notes
    -----
    With A(m, v) = E|N(m, v)|,
    CRPS = E|X − y| − ½ E|X − X'| =
    1/S Σ_s A(means_s − y, variances_s) − 1/(2 S²) Σ_st A(means_s − means_t, variances_s + variances_t).

    Examples
    --------
    >>> from wishflow.metrics import crps_gaussian_mixture
    >>> crps_gaussian_mixture([0.0], [[-1.0], [1.0]], [[0.0], [0.0]])
    array([0.5])
    """
    y, means = _with_samples(y, means, name="means", at_least=1)
    means, variances = _same_shape(means=means, variances=variances)
    _not_negative("variances", variances)
    size = len(means)
    # A(0, 2v) = 2 √(v/π) on the diagonal of the double sum; the rest twice, one off-diagonal at a time.
    pairs = 2.0 * INVERSE_ROOT_PI * np.sum(np.sqrt(variances), axis=0)
    for lag in range(1, size):
        spread = _mean_absolute(means[lag:] - means[:-lag], variances[lag:] + variances[:-lag])
        pairs = pairs + 2.0 * np.sum(spread, axis=0)
    return np.mean(_mean_absolute(means - y, variances), axis=0) - 0.5 * pairs / size**2


def energy_score(y: ArrayLike, samples: ArrayLike) -> Float[np.ndarray, " N"]:
    """Energy score of vector targets from draws.

    It is the continuous ranked probability score of P dimensions. For P = 1 it equals `crps_samples`.

    Parameters
    ----------
    y : array-like of shape (N, P)
        Targets with P outputs.
    samples : array-like of shape (S, N, P)
        Draws from the predictive law of each target, S ≥ 2.

    Returns
    -------
    ndarray of shape (N,)
        Score of each target; smaller is better.

    Raises
    ------
    DataError
        If the shapes do not belong together, or there are fewer than two draws.

    See Also
    --------
    variogram_score : A score that is more sensitive to wrong correlations.

    Notes
    -----
    The fair estimator is used, whose expectation does not depend on S:
    ES = 1/S Σ_i ‖x_i − y‖ − 1/(2 S(S−1)) Σ_ij ‖x_i − x_j‖.

    Examples
    --------
    >>> from wishflow.metrics import energy_score
    >>> energy_score([[0.0, 0.0]], [[[3.0, 4.0]], [[-3.0, -4.0]]])
    array([0.])
    """
    y, samples = _with_samples(y, samples)
    _has_outputs(y)
    size = len(samples)
    by_target = samples.reshape(size, -1, y.shape[-1])
    pairs = _sums_of_distances(by_target).reshape(y.shape[:-1])
    return np.mean(np.linalg.norm(samples - y, axis=-1), axis=0) - pairs / (size * (size - 1.0))


def _sums_of_distances(samples: Float[np.ndarray, "S N P"]) -> Float[np.ndarray, " N"]:
    """Σ_{i<j} ‖x_i − x_j‖ for each target, in threads: SciPy lets go of the interpreter while it computes."""
    size, n_targets, _ = samples.shape
    n_threads = min(os.cpu_count() or 1, max(1, DISTANCE_BYTES // (4 * size**2)))  # S(S−1)/2 numbers of 8 bytes each
    with ThreadPoolExecutor(n_threads) as pool:
        return np.array(list(pool.map(lambda n: pdist(samples[:, n]).sum(), range(n_targets))))


def variogram_score(
    y: ArrayLike, samples: ArrayLike, order: float = 0.5, weights: ArrayLike | None = None
) -> Float[np.ndarray, " N"]:
    """Variogram score of vector targets from draws.

    It is sensitive to wrong correlations between the outputs.

    Parameters
    ----------
    y : array-like of shape (N, P)
        Targets with P outputs.
    samples : array-like of shape (S, N, P)
        Draws from the predictive law of each target.
    order : float, default=0.5
        The power p of the differences, above 0; often 0.5 or 1.
    weights : array-like of shape (P, P), optional
        Weights w_ij of the pairs of outputs. All are 1 by default.

    Returns
    -------
    ndarray of shape (N,)
        Score of each target; smaller is better.

    Raises
    ------
    DataError
        If the shapes do not belong together.
    OptionError
        If `order` is not above 0.

    Notes
    -----
    VS = Σ_ij w_ij (|y_i − y_j|^p − 1/S Σ_s |x_si − x_sj|^p)² (Scheuerer & Hamill 2015).

    Examples
    --------
    >>> from wishflow.metrics import variogram_score
    >>> variogram_score([[0.0, 1.0]], [[[0.0, 0.0]]])
    array([2.])
    """
    y, samples = _with_samples(y, samples, at_least=1)
    _has_outputs(y)
    if not order > 0:
        raise OptionError(f"order={order!r} given to the variogram score; expected a number above 0, often 0.5 or 1.")
    n_outputs = y.shape[-1]
    weights = np.ones((n_outputs, n_outputs)) if weights is None else np.asarray(weights, float)
    if weights.shape != (n_outputs, n_outputs):
        expected = (n_outputs, n_outputs)
        raise DataError(f"weights has shape {weights.shape}; expected {expected}, one for each pair of outputs.")
    score = np.zeros(y.shape[:-1])
    for i in range(n_outputs):  # one row of pairs at a time keeps the memory at that of the samples
        observed = np.abs(y[..., i : i + 1] - y) ** order
        expected = np.mean(np.abs(samples[..., i : i + 1] - samples) ** order, axis=0)
        score += (observed - expected) ** 2 @ weights[i]
    return score


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Share of the targets inside their intervals.

    Parameters
    ----------
    y : array-like
        Targets.
    lower : array-like
        Lower ends of the intervals, of the shape of `y`.
    upper : array-like
        Upper ends of the intervals, of the shape of `y`.

    Returns
    -------
    float
        The share of targets with lower ≤ y ≤ upper.

    Raises
    ------
    DataError
        If the shapes differ, the arrays are empty, or a lower end is above its upper end.

    Examples
    --------
    >>> from wishflow.metrics import coverage
    >>> coverage([0.0, 2.0], lower=[-1.0, -1.0], upper=[1.0, 1.0])
    0.5
    """
    y, lower, upper = _interval(y, lower, upper)
    return float(np.mean((lower <= y) & (y <= upper)))


def interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float = 0.9
) -> Float[NumPyArray, "*shape"]:
    """Interval score of central prediction intervals, also called Winkler score.

    Parameters
    ----------
    y : array-like
        Targets.
    lower : array-like
        Lower ends of the intervals, of the shape of `y`.
    upper : array-like
        Upper ends of the intervals, of the shape of `y`.
    coverage : float, default=0.9
        The coverage that the intervals were made for, between 0 and 1.

    Returns
    -------
    ndarray
        Score of each target, of the shape of `y`; smaller is better.

    Raises
    ------
    DataError
        If the shapes differ, the arrays are empty, or a lower end is above its upper end.
    OptionError
        If `coverage` is not between 0 and 1.

    Notes
    -----
    IS = (upper − lower) + 2/α (lower − y)₊ + 2/α (y − upper)₊, with α = 1 − coverage (Gneiting & Raftery 2007, eq. 43).

    Examples
    --------
    >>> from wishflow.metrics import interval_score
    >>> interval_score([0.0, 2.0], lower=[-1.0, -1.0], upper=[1.0, 1.0], coverage=0.5)
    array([2., 6.])
    """
    y, lower, upper = _interval(y, lower, upper)
    if not 0.0 < coverage < 1.0:
        raise OptionError(f"coverage={coverage!r} given to the interval score; expected a number between 0 and 1.")
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return (upper - lower) + 2.0 / (1.0 - coverage) * missed


def log_prob_scorer(estimator: Any, X: Any, y: Any) -> float:
    """Scorer of scikit-learn: the mean log density of the targets under the predictions.

    The model may stand at the end of a pipeline, or be the best one of a search.

    Parameters
    ----------
    estimator : object
        A fitted estimator with a method `log_prob(X, y)`.
    X : array-like of shape (N, D)
        Inputs.
    y : array-like of shape (N,) or (N, P)
        Targets.

    Returns
    -------
    float
        The mean log density; greater is better.

    Raises
    ------
    OptionError
        If the estimator has no method `log_prob`.

    Examples
    --------
    Choose the number of inducing points by cross-validation:

    >>> from sklearn.model_selection import GridSearchCV
    >>> import wishflow as wf
    >>> search = GridSearchCV(
    ...     wf.SparseGPRegressor(), {"n_inducing": [20, 50]}, scoring=wf.metrics.log_prob_scorer
    ... )
    """
    if hasattr(estimator, "log_prob"):
        return mean_log_density(estimator.log_prob(X, y))
    if hasattr(estimator, "best_estimator_"):
        return log_prob_scorer(estimator.best_estimator_, X, y)
    if hasattr(estimator, "steps"):  # a Pipeline offers only the methods that it knows by name
        inputs = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X
        return log_prob_scorer(estimator[-1], inputs, y)
    raise OptionError(
        f"{type(estimator).__name__} has no method `log_prob`; expected an estimator that predicts densities."
    )


def _mean_absolute(
    mean: Float[NumPyArray, "*#shape"], variance: Float[NumPyArray, "*#shape"]
) -> Float[NumPyArray, "*shape"]:
    """E|N(m, v)| = m (2Φ(m/√v) − 1) + 2 √v φ(m/√v); |m| where v = 0."""
    std = np.sqrt(variance)
    with np.errstate(over="ignore"):  # m/√v may overflow to infinity for tiny v; Φ and φ then have their limits
        z = np.abs(mean) / np.where(std > 0.0, std, 1.0)
        z = np.where(std > 0.0, z, np.inf)
        return np.abs(mean) * (2.0 * ndtr(z) - 1.0) + 2.0 * std * INVERSE_ROOT_TWO_PI * np.exp(-0.5 * z**2)


def _filled(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, float)
    if array.size == 0:
        raise DataError(f"{name} is empty; expected at least one value to score.")
    return array


def _same_shape(**arrays: ArrayLike) -> tuple[np.ndarray, ...]:
    """Float64 arrays of one shape. Broadcasting is refused: (N, 1) with (N,) would score N² pairs in silence."""
    values = {name: _filled(name, value) for name, value in arrays.items()}
    if len({value.shape for value in values.values()}) > 1:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in values.items())
        raise DataError(f"shapes differ: {shapes}; expected one shape. Use `ravel()` on a single column.")
    return tuple(values.values())


def _with_samples(
    y: ArrayLike, samples: ArrayLike, name: str = "samples", at_least: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    y, samples = _filled("y", y), _filled(name, samples)
    if samples.ndim != y.ndim + 1 or samples.shape[1:] != y.shape:
        expected = ", ".join(["S", *map(str, y.shape)])
        raise DataError(f"{name} has shape {samples.shape}, y {y.shape}; expected {name} ({expected}), draws first.")
    if len(samples) < at_least:
        raise DataError(f"{name} holds {len(samples)} draw(s); expected at least {at_least}.")
    return y, samples


def _has_outputs(y: np.ndarray) -> None:
    if y.ndim < 2:
        raise DataError(
            f"y has shape {y.shape}; expected (N, P), outputs on the last axis. Use `crps_samples` for (N,)."
        )


def _not_negative(name: str, value: np.ndarray) -> None:
    if np.any(value < 0):
        raise DataError(f"{name} holds {value.min():g}; expected no negative value.")


def _interval(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[np.ndarray, ...]:
    y, lower, upper = _same_shape(y=y, lower=lower, upper=upper)
    if np.any(lower > upper):
        crossed = int(np.sum(lower > upper))
        raise DataError(f"lower exceeds upper in {crossed} intervals; expected lower ≤ upper: were they swapped?")
    return y, lower, upper
