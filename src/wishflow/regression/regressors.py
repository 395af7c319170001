"""`SparseGPRegressor` (SGP) and `FlowRegressor` (No noise, diffGP, diffWGP), used like any scikit-learn regressor."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .. import likelihoods, specs
from ..errors import OptionError
from ..kernels.specs import KERNELS, KernelSpec
from ..likelihoods import LIKELIHOODS, Bernoulli, Categorical, LikelihoodSpec, PoissonLikelihood
from ..numerics.scaling import Scaler
from ..numerics.tables import law_columns
from ..specs import checks
from ..training.options import TrainingOptions, preset_spec, with_options
from ..training.specs import TrainingSpec
from . import plots, prediction
from .data import (
    check_no_labels,
    check_numeric,
    checked_numbers,
    checked_rows,
    checked_targets,
    groups_of,
    names_of_targets,
    rows_of,
    target_names,
)
from .datasets import predicted_dataset, problem_of_dataset
from .diagnosis import LEVELS, Diagnosis, diagnosis_of
from .estimator import ModelEstimator, Validated, check_average, with_log_rate
from .flow_options import flow_spec, flow_training
from .presets import PRESETS
from .problems import Problem
from .regions import JointRegion
from .specs import SparseGPSpec
from .summary import diffusion_ratio

N_COVARIANCE_DRAWS = 500


class ModelRegressor(MultiOutputMixin, RegressorMixin, ModelEstimator):
    """What the regressors share: y of one or several columns; means, intervals, densities and draws in its units."""

    def fit(self, X: Any, y: Any, *, groups: Any = None, devices: Any = None) -> ModelRegressor:
        """Fit to inputs and targets; scales come from these rows alone.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs. Frames keep the names of their columns.
        y : array-like of shape (N,) or (N, P)
            Targets. Predictions have the same form.
        groups : array-like of shape (N,), optional
            Labels of rows that belong together, such as the rows of one subject. They stay on one side of all splits
            inside `fit`: into held-back rows and others, into the folds of members, and for recalibration, where a row
            is predicted from the rows of other groups. By default rows with equal inputs are a group, if there are at
            least 30 distinct ones.
        devices : "all", int or list of jax.Device, optional
            Devices over which the rows of each batch are split: all that JAX has, the first of them, or a list. With
            several processes (`wishflow launch`) all of them call `fit` with the same data. The result does not depend
            on the number of devices, up to rounding. By default one device.

        Returns
        -------
        ModelRegressor
            The estimator itself, fitted. An error, or Ctrl-C, leaves it as it was.

        Raises
        ------
        OptionError
            If an option has a value that is not known.
        DataError
            If the data cannot be used as they are, for instance targets that cannot come from the likelihood.
        TrainingError
            If training produces non-finite numbers from its very first step.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.n_features_in_, model.predict(X[:3]).shape
        (1, (3,))
        """
        fitted = copy.copy(self)
        return self._trained(fitted, fitted._prepare(X, y, groups), devices)

    def fit_dataset(
        self, source: Any, target: Any, columns: Any = None, *, n_parts: int = 8, devices: Any = None
    ) -> ModelRegressor:
        """Fit to Parquet or Arrow data that need not fit into memory.

        One pass over the rows finds the scales, and a sample of 10,500 rows for inducing points and for the rows that
        are held back. Stochastic steps then see minibatches that are read in random order.

        Parameters
        ----------
        source : str, path, list of paths or pyarrow.dataset.Dataset
            A Parquet file, a folder of them (with folders NAME=VALUE as further columns), a list of files, or a data
            set of pyarrow, of any format. With several processes all of them must reach all files.
        target : str or list of str
            Names of the columns with targets. With a list predictions have two axes.
        columns : list of str, optional
            Names of the columns with inputs. By default all others.
        n_parts : int, default=8
            Parts that the rows are cut into. Each batch has as many rows of each part, so that `batch_size` is rounded
            up to a multiple. The number of devices must divide it. The result depends on it, but not on the number of
            devices or processes.
        devices : "all", int or list of jax.Device, optional
            As in `fit`. Each process reads the parts of its own devices.

        Returns
        -------
        ModelRegressor
            The estimator itself, fitted. An error, or Ctrl-C, leaves it as it was.

        Raises
        ------
        ImportError
            If `pyarrow` is not installed (`pip install "wishflow[parquet]"`).
        OptionError
            If an option has a value that is not known, or there are several members.
        DataError
            If a column is missing, or holds something other than finite numbers, or there are too few rows.

        See Also
        --------
        predict_dataset : Predictions of such data.

        Notes
        -----
        The steps are stochastic for all likelihoods and sizes. A preset has as many of them as for data in memory; one
        pass over N rows is N / `batch_size` iterations. In each part rows are shuffled within windows of 262,144 /
        `n_parts`, and units of reading (row groups of Parquet) are visited in random order. Small row groups, of some
        5,000 rows, are shuffled better and read with less memory. A `FlowRegressor` is
        recalibrated by the held-back rows; a `SparseGPRegressor` is not.

        Examples
        --------
        >>> import wishflow as wf
        >>> model = wf.SparseGPRegressor(max_iter=5000)
        >>> model.fit_dataset("trips/", target="minutes", columns=["km", "hour"])  # doctest: +SKIP
        """
        fitted = copy.copy(self)
        return self._trained(fitted, problem_of_dataset(fitted, source, target, columns, n_parts), devices)

    def predict_dataset(
        self, source: Any, destination: Any, alpha: Any = (0.05, 0.5, 0.95), *, keep: Sequence[str] = ()
    ) -> Path:
        """Predict Parquet or Arrow data part by part, and write the predictions as Parquet.

        Parameters
        ----------
        source : str, path, list of paths or pyarrow.dataset.Dataset
            As in `fit_dataset`; with the columns of the inputs.
        destination : str or path
            A folder, made where there is none. Each file of the source has one there, `part-000000.parquet` and so on,
            with as many rows in the same order. A file is there when it is complete. With several processes each writes
            some of the files.
        alpha : float or array-like of shape (A,), default=(0.05, 0.5, 0.95)
            Probabilities of the quantiles, strictly between 0 and 1.
        keep : sequence of str, default=()
            Columns of the source that are written too, before the columns of `predict_frame`.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        ImportError
            If `pyarrow` is not installed (`pip install "wishflow[parquet]"`).
        DataError
            If a column is missing, or holds something other than finite numbers.

        See Also
        --------
        predict_frame : The columns that are written.

        Examples
        --------
        >>> model.predict_dataset("trips/", "predictions/", keep=["trip_id"])  # doctest: +SKIP
        """
        check_is_fitted(self, "model_")
        return predicted_dataset(self, source, destination, alpha, keep)

    def _prepare(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        n_rows: int | None = None,
        scalers: tuple[Scaler, Scaler] | None = None,
    ) -> Problem:
        check_no_labels(y)
        check_numeric(y, "y")
        self.target_names_ = target_names(y)
        X, y = checked_rows(self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2)
        y = checked_numbers(y)
        self.is_multi_output_ = y.ndim == 2
        likelihood = specs.resolve("likelihood", self.likelihood, LIKELIHOODS, LikelihoodSpec)
        if isinstance(likelihood, Bernoulli | Categorical):
            raise OptionError(f"likelihood={self.likelihood!r} is for classes; use FlowClassifier for labels.")
        y = y if y.ndim == 2 else y[:, None]
        # Copies of the rows of a sample are not looked for: those outside it could not be kept apart.
        together = groups_of(X, groups) if scalers is None else None
        likelihoods.build(likelihood, y.shape[1]).validate(y)
        return self._problem(X, y, with_log_rate(likelihood, y), together, n_rows, scalers)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(N, P, …) as it is for several targets, (N, …) for one."""
        return values if self.is_multi_output_ else values[:, 0]

    def _out_of_fold(self, mean: np.ndarray) -> np.ndarray:
        return self._shaped(mean)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predict the mean, and on request the standard deviation or the covariance of all rows.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        return_std : bool, default=False
            Whether to return the standard deviation too.
        return_cov : bool, default=False
            Whether to return the covariance between rows too.

        Returns
        -------
        ndarray, or tuple of two ndarrays
            The mean, (N,) or (N, P). With `return_std` also the standard deviation, of the same shape. With
            `return_cov` also the covariance between rows, (N, N) for one target and (N, N, P) for several, as in
            scikit-learn's GaussianProcessRegressor.

        Raises
        ------
        OptionError
            If both `return_std` and `return_cov` are asked for.

        Notes
        -----
        The correlations of the covariance are those of joint draws: 500 of them, or `n_predict_samples` where that is
        more. Its variances are the squares of what `return_std` gives.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> mean, std = model.predict(X[:3], return_std=True)
        >>> mean.shape, std.shape
        ((3,), (3,))
        """
        if return_std and return_cov:
            raise OptionError("return_std and return_cov were both asked for; ask for one of them.")
        check_is_fitted(self, "model_")
        mean, covariance = self._moments(X)
        mean = self._shaped(self.y_scaler_.inverse(mean))
        std = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)) * self.y_scaler_.scale
        if return_std:
            return mean, self._shaped(std)
        if return_cov:
            return mean, self._joint_covariance(X, std)
        return mean

    def _joint_covariance(self, X: Any, std: np.ndarray) -> np.ndarray:
        """Correlations from joint draws, variances exact."""
        draws = self._draws(X, max(self._n_predict(), N_COVARIANCE_DRAWS), self.seed_)
        centred = draws - draws.mean(0)
        covariance = np.einsum("snp,smp->nmp", centred, centred) / (len(draws) - 1)
        n = np.arange(len(std))
        sampled = np.sqrt(np.maximum(covariance[n, n], np.finfo(float).tiny))
        covariance *= (std / sampled)[:, None] * (std / sampled)[None]
        return covariance if self.is_multi_output_ else covariance[..., 0]

    def predict_components(self, X: Any, return_weights: bool = False) -> tuple[np.ndarray, ...]:
        """Return the components of the predictive law, which is their mixture.

        With Gaussian noise the components are normal. All scores of a row follow from them. Components are the sample
        paths of the members. Those of a recalibrated law with tails come twice, narrow and wide.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        return_weights : bool, default=False
            Whether to return the weights of the components too. They are equal unless there are several candidates or
            tails.

        Returns
        -------
        means : ndarray of shape (S, N) or (S, N, P)
            Mean of y of each of S components. S is 1 where the inputs are not moved at random.
        variances : ndarray of shape (S, N) or (S, N, P)
            Variance of y of each component.
        weights : ndarray of shape (S,)
            Weights of the components. Only with `return_weights`.

        See Also
        --------
        wishflow.metrics.crps_gaussian_mixture : A score of these components.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> means, variances = model.predict_components(X[:3])  # one component: the law is normal
        >>> means.shape, variances.shape
        ((1, 3), (1, 3))
        """
        Z = self._scaled(X)
        means, variances, weights = prediction.predictive_components(self._law(), Z, self.seed_, self._n_predict())
        means, variances = self.y_scaler_.inverse(means), variances * self.y_scaler_.scale**2
        parts = (means, variances) if self.is_multi_output_ else (means[..., 0], variances[..., 0])
        return (*parts, weights) if return_weights else parts

    def predict_quantiles(self, X: Any, alpha: Any) -> np.ndarray:
        """Predict quantiles, by inverting the predictive distribution function.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        alpha : float or array-like of shape (A,)
            Probabilities strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (N, A) or (N, P, A)
            Quantiles of each target.

        Raises
        ------
        OptionError
            If `alpha` holds no probability, or one that is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.predict_quantiles(X[:3], [0.1, 0.5, 0.9]).shape
        (3, 3)
        """
        levels = checks.levels("alpha", alpha)
        Z = self._scaled(X)
        quantiles = prediction.predictive_quantiles(self._law(), Z, levels, self.seed_, self._n_predict())
        quantiles = quantiles * self.y_scaler_.scale[:, None] + self.y_scaler_.mean[:, None]
        return self._shaped(quantiles)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Predict the central interval of each target.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        coverage : float, default=0.9
            Probability inside the interval, strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (N, 2) or (N, P, 2)
            Lower and upper ends: the quantiles at ½ − coverage/2 and ½ + coverage/2.

        Raises
        ------
        OptionError
            If `coverage` is not one number between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> low, high = model.predict_interval(X[:3], coverage=0.8).T
        >>> bool((low < high).all())
        True
        """
        level = checks.level("coverage", coverage, "use predict_quantiles for several")
        return self.predict_quantiles(X, [0.5 - level / 2, 0.5 + level / 2])

    def predict_frame(self, X: Any, alpha: Any = (0.05, 0.5, 0.95)) -> pd.DataFrame:
        """Predict mean, standard deviation and quantiles of each target as a DataFrame.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        alpha : float or array-like of shape (A,), default=(0.05, 0.5, 0.95)
            Probabilities of the quantiles, strictly between 0 and 1.

        Returns
        -------
        DataFrame
            The columns NAME_mean, NAME_sd and NAME_q05, … for each target NAME, in the units of y. The index is that of
            `X` where it has one. Targets without names are called y, or y1, y2 and so on.

        Raises
        ------
        OptionError
            If `alpha` holds no probability, or one that is not between 0 and 1.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> import wishflow as wf
        >>> X = pd.DataFrame({"x": np.linspace(-2.0, 2.0, 40)})
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X["x"]).rename("height"))
        >>> model.predict_frame(X.tail(2), alpha=[0.1, 0.9]).columns.tolist()
        ['height_mean', 'height_sd', 'height_q10', 'height_q90']
        """
        levels = checks.levels("alpha", alpha)
        mean, sd = self.predict(X, return_std=True)
        names = names_of_targets(self)
        shape, index = (len(mean), len(names)), rows_of(X, len(mean))
        quantiles = self.predict_quantiles(X, levels).reshape(*shape, len(levels))
        return law_columns(names, mean.reshape(shape), sd.reshape(shape), quantiles, levels.tolist(), index)

    def log_prob(self, X: Any, y: Any, average: str = "density") -> np.ndarray:
        """Return the log predictive density of each row, joint over targets, in the units of y.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        y : array-like of shape (N,) or (N, P)
            Targets.
        average : {"density", "log"}, default="density"
            What is averaged over sample paths. "density" is the log of the mean density, that of the mixture. "log" is
            the mean of the logs, which is the paper's score and kept for comparison.

        Returns
        -------
        ndarray of shape (N,)
            Log density of each row.

        Raises
        ------
        OptionError
            If `average` is not known.
        DataError
            If `y` has another shape than the targets of the fit, or cannot come from the likelihood.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.log_prob(X[:3], y[:3]).shape
        (3,)
        >>> bool(model.log_prob(X[:1], y[:1]) > model.log_prob(X[:1], y[:1] + 1.0))
        True
        """
        check_average(average)
        Z = self._scaled(X)
        y = checked_targets(y, len(Z), len(self.y_scaler_.scale))
        self.model_.likelihood.validate(y)
        return self._log_prob(Z, self.y_scaler_.forward(y), average) - np.log(self.y_scaler_.scale).sum()

    def diagnose(self, X: Any, y: Any) -> Diagnosis:
        """Check whether the predictive law fits rows that the model has not seen.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs that took no part in training.
        y : array-like of shape (N,) or (N, P)
            Their targets.

        Returns
        -------
        Diagnosis
            PIT and its histogram, coverage and mean width of 50, 80 and 95 % intervals, RMSE, log density, and for
            several targets the correlation of the errors before and after whitening by the predictive covariance.
            Of a flow also the size of its diffusion beside the noise. `print` shows it in words, `plot` as a figure.

        Warns
        -----
        UserWarning
            Where intervals cover clearly less than their nominal level.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> diagnosis = model.diagnose(X, y)
        >>> sorted(diagnosis.coverage)
        [0.5, 0.8, 0.95]
        """
        Z = self._scaled(X)
        y = checked_targets(y, len(Z), len(self.y_scaler_.scale))
        self.model_.likelihood.validate(y)
        law, scale, n_paths = self._law(), self.y_scaler_.scale, self._n_predict()
        pit = prediction.predictive_cdf(law, Z, self.y_scaler_.forward(y), self.seed_, n_paths)
        if isinstance(self.model_.likelihood, PoissonLikelihood):
            below = prediction.predictive_cdf(law, Z, y - 1.0, self.seed_, n_paths)
            pit = below + np.random.default_rng(self.seed_).random(y.shape) * (pit - below)
        mean, covariance = self._output_moments(X)
        edges = sorted(0.5 + sign * 0.5 * level for level in LEVELS for sign in (-1, 1))
        quantiles = prediction.predictive_quantiles(law, Z, np.array(edges), self.seed_, n_paths)
        ends = {edge: self.y_scaler_.inverse(quantiles[..., i]) for i, edge in enumerate(edges)}
        intervals = {level: (ends[0.5 - 0.5 * level], ends[0.5 + 0.5 * level]) for level in LEVELS}
        log_prob = self._log_prob(Z, self.y_scaler_.forward(y), "density") - np.log(scale).sum()
        found = diagnosis_of(y, mean, covariance, pit, intervals, log_prob, diffusion_ratio(self.model_))
        for text in found.warnings:
            warnings.warn(text, UserWarning, stacklevel=2)
        return found

    def conformal_region(self, X: Any, y: Any, coverage: float = 0.9, *, groups: Any = None) -> JointRegion:
        """Make ellipsoids that contain all targets of a new row at once, with the given probability.

        Parameters
        ----------
        X : array-like of shape (n, D)
            Inputs of calibration rows: like those to come, and without a part in training.
        y : array-like of shape (n,) or (n, P)
            Their targets. A coverage of c needs n ≥ c / (1 − c) rows: 9 for 0.9, 99 for 0.99.
        coverage : float, default=0.9
            The probability. It holds whether or not the predictive law is right.
        groups : array-like of shape (n,), optional
            Labels of rows that belong together, such as the rows of one subject or copies of a row. One row of each
            group is used, chosen at random: groups are exchangeable with new ones where their rows are not.

        Returns
        -------
        JointRegion
            The region. It does not change when this estimator is fitted again.

        Raises
        ------
        DataError
            If there are too few calibration rows for the coverage.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> region = model.conformal_region(X, y, coverage=0.8)  # better with rows that `fit` has not seen
        >>> region.contains(X[:3], y[:3]).shape
        (3,)
        """
        check_is_fitted(self, "model_")
        fitted = copy.copy(self)  # stays as it is when this estimator is fitted again
        return JointRegion.of(fitted._output_moments, X, y, coverage, groups)

    def _output_moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean (N, P) and covariance over targets (N, P, P), in the units of y."""
        (mean, covariance), scale = self._moments(X), self.y_scaler_.scale
        return self.y_scaler_.inverse(mean), covariance * scale[:, None] * scale

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draw targets jointly at all rows.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.
        n_samples : int, default=1
            Number S of draws.
        random_state : int, RandomState or None, default=0
            Seed of the draws. None takes one from NumPy's own generator.

        Returns
        -------
        ndarray of shape (N, S) or (N, P, S)
            Draws, shaped as scikit-learn shapes them.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
        >>> model.sample_y(X[:3], n_samples=10).shape
        (3, 10)
        """
        check_is_fitted(self, "model_")
        n_samples = checks.positive_int("n_samples", n_samples)
        return self._shaped(np.moveaxis(self._draws(X, n_samples, checks.any_seed(random_state)), 0, -1))

    def plot_bands(
        self,
        X: Any,
        y: Any = None,
        *,
        feature: Any = 0,
        target: Any = 0,
        coverages: Sequence[float] = (0.5, 0.9),
        ax: Any = None,
    ) -> Any:
        """Draw the median and central intervals of a target along one input.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs. The curves go from the least to the largest value of the input; the other inputs are held at their
            medians.
        y : array-like of shape (N,) or (N, P), optional
            Targets, drawn as dots.
        feature : int or str, default=0
            The input, by number or name.
        target : int or str, default=0
            The target, by number or name.
        coverages : sequence of float, default=(0.5, 0.9)
            Coverages of the intervals.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        DataError
            If there is no such input or target.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
        >>> model.plot_bands(X, y, ax=Figure().subplots()).get_xlabel()
        'x1'
        """
        return plots.plot_bands(self, X, y, feature, target, coverages, ax)

    def plot_calibration(self, X: Any, y: Any, axes: Any = None) -> np.ndarray:
        """Draw the histogram of the PIT and the coverage of intervals, for rows that the model has not seen.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs that took no part in training.
        y : array-like of shape (N,) or (N, P)
            Their targets.
        axes : sequence of two Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        ndarray of two Axes
            The axes.

        See Also
        --------
        diagnose : The same as numbers and in words.

        Examples
        --------
        >>> import numpy as np
        >>> import wishflow as wf
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(-2.0, 2.0, 80)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=80)
        >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X[::2], y[::2])
        >>> [ax.get_title() for ax in model.plot_calibration(X[1::2], y[1::2], Figure().subplots(1, 2))]
        ['Probability integral transform', 'Coverage']
        """
        return plots.plot_calibration(self, X, y, axes)

    def _draws(self, X: Any, n_samples: int, seed: int) -> np.ndarray:
        draws = prediction.joint_samples(self._law(), self._scaled(X), seed, n_samples, self._n_predict(), self.seed_)
        return self.y_scaler_.inverse(draws)


class SparseGPRegressor(ModelRegressor):
    """Sparse Gaussian process regression with several outputs and non-Gaussian noise (SGP).

    With Gaussian noise the marginal likelihood (few rows) or the collapsed bound is maximised by L-BFGS where N allows;
    otherwise natural gradients and Adam.

    Parameters
    ----------
    n_inducing : int or "auto", default="auto"
        The most inducing points M. With "auto" and Gaussian noise all distinct rows up to 1,500 rows, which is an exact
        GP, and √(1.6e8 / N) beyond, at least 100. Otherwise, and with `preset="paper"`, 100.
    kernel : str or KernelSpec, default="rbf"
        Kernel of the Gaussian process: "rbf", "matern12", "matern32", "matern52", "linear", "periodic", or a spec from
        `wishflow.kernels`, such as `RBF(lengthscale=2.0) + Linear()`.
    likelihood : str or LikelihoodSpec, default="gaussian"
        Noise of the targets: "gaussian", "student_t", "poisson", or a spec from `wishflow.likelihoods`.
    preset : {"fast", "paper"} or TrainingSpec, default="fast"
        How the model is trained. A name is a rule of N and D alone: "fast" is one rule for all data sets, "paper" are
        the paper's own settings. Options below that are None come from it.
    max_iter : int, optional
        The most iterations.
    batch_size : int, optional
        Rows of a batch, for stochastic steps.
    learning_rate : float or callable, optional
        Learning rate of Adam, or an optax schedule. L-BFGS does not use it.
    tol : float, optional
        Least rise of the objective, in nats per row. Where the best mean over 100 iterations has not risen by it in
        five times 100 iterations, the learning rate starts to fall; where it falls already, training ends. 0 switches
        this off. It is for stochastic steps.
    random_state : int, RandomState or None, default=None
        Seed of initialisation, training and prediction. None means 0, so that a fit can be repeated.
    callbacks : Callback or list of Callback, optional
        Callbacks of training, from `wishflow.callbacks` or of your own.
    verbose : int, default=0
        0 is silent, 1 shows a progress bar.
    n_members : int, default=1
        K > 1 fits K members, each without one fold of the rows. The predictive law is their mixture.
    calibrate : {"auto", None}, default="auto"
        With "auto" and Gaussian noise the predictive law is recalibrated where a test says that it is needed: its width
        may then depend on the inputs, and its tails may be heavier than those of a normal. Each row is predicted from
        the others for that; kernel and noise are not refitted. None turns it off. `preset="paper"` and more than 50,000
        rows have none. See Notes.
    checkpoint_dir : str, path or Checkpointing, optional
        Folder for checkpoints of training, so that the same fit goes on where it was killed. Ctrl-C then ends training
        at the next chunk of steps, with `status_` "interrupted" (docs/reliability.md). `wf.Checkpointing` also says how
        often a state is written and how many are kept.
        Fits by L-BFGS, the rule with Gaussian noise, write nothing and start anew.
    backend : {None, "loky", "ray", "dask", "slurm"}, default=None
        Where members are trained, one by one: in this process, or as in `wishflow.fit_many`. On a backend they have
        no callbacks.
    backend_params : dict, optional
        Options of the backend.
    hyperprior : {"auto", None}, default="auto"
        With "auto", Gaussian noise and fewer than 250 rows the lengthscales and the noise have a weak prior, which
        favours near-linear functions and more noise. Only the lengthscales of stationary kernels (RBF and Matérn) have
        it, not those of "periodic". None turns it off: the bound alone is maximised. `preset="paper"` has none.

    Attributes
    ----------
    model_ : SparseGPModel
        The fitted model, of scaled inputs and targets; with several members the first of them.
    spec_ : SparseGPSpec
        Kernel and likelihood that were fitted.
    training_ : TrainingSpec
        How the model was trained: the preset with the options that were given.
    history_ : DataFrame
        One row for each iteration: `objective`, its parts, and `bound`, the same number, which for a sparse GP is a
        lower bound of the log evidence of the scaled targets (an estimate of it where steps see minibatches).
    n_iter_ : int
        Number of iterations.
    status_ : str
        How training ended, whether the fit explains nothing, and how the law was recalibrated.
    calibration_ : Calibration, dict or None
        The recalibration. None: nothing was changed. With several members a dict by candidate.
    x_scaler_, y_scaler_ : Scaler
        Scales of inputs and targets.
    seed_ : int
        The seed that `random_state` stood for.
    is_multi_output_ : bool
        Whether `y` had two axes.
    n_features_in_ : int
        Number D of inputs.
    target_names_ : list of str or None
        Names of the targets; None where `y` had none.
    members_ : dict of str to list
        Models of the members by candidate. Only with `n_members` above 1, as the following ones.
    member_specs_ : dict of str to Spec
        Specs of the candidates.
    weights_ : dict of str to float
        Weights of the candidates.
    oof_predictions_ : ndarray of shape (N,) or (N, P)
        Mean of each row by the member that has not seen it, before recalibration. These predictions recalibrate the
        mixture.
    oof_log_prob_ : ndarray of shape (N,)
        Log density of each row by the member that has not seen it, before recalibration.

    See Also
    --------
    FlowRegressor : Inputs flow through an SDE before a sparse GP predicts.
    fit_many : Fit many estimators at once.

    Notes
    -----
    The model is y = g(x) + noise, or y ~ p(y | g(x)), with one Gaussian process g for each target. It is approximated
    through its values at M inducing points. Inputs and targets are standardised first (targets with Student-t noise by
    robust scales; counts are not scaled). With Gaussian noise kernel and noise start from those of an exact GP of 500
    rows. A fit that explains nothing of the targets warns, and says so in `status_`.

    Recalibration counts groups where `fit` was given `groups` or rows have copies. With fewer than 30 groups nothing is
    recalibrated. The width depends on the inputs only if there are at least 60 groups, and at least half as many groups
    as rows. Of the groups with several rows, a single model uses at most 1000, chosen at random.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2.0, 2.0, (40, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((40,), (40,))
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        n_inducing="auto",
        kernel="rbf",
        likelihood="gaussian",
        preset="fast",
        max_iter=None,
        batch_size=None,
        learning_rate=None,
        tol=None,
        random_state=None,
        callbacks=None,
        verbose=0,
        n_members=1,
        calibrate="auto",
        checkpoint_dir=None,
        backend=None,
        backend_params=None,
        hyperprior="auto",
    ):
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.likelihood = likelihood
        self.preset = preset
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
        self.n_members = n_members
        self.calibrate = calibrate
        self.checkpoint_dir = checkpoint_dir
        self.backend = backend
        self.backend_params = backend_params
        self.hyperprior = hyperprior

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        """There is only the phase of the output GP here, so `max_iter` and `learning_rate` are those of that phase."""
        options = TrainingOptions(
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tol=self.tol,
            calibrate=self.calibrate,
            hyperprior=self.hyperprior,
        )
        training = with_options(preset_spec(self.preset, PRESETS, n_rows, n_inputs), options)
        changes: dict[str, Any] = {}
        if self.max_iter is not None:
            changes["warm_iter"] = changes["sgp_iter"] = training.max_iter
        if self.learning_rate is not None:
            changes["warm_rate"] = training.learning_rate
        return dataclasses.replace(training.without_flow(), **changes)

    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        kernel = specs.resolve("kernel", self.kernel, KERNELS, KernelSpec)
        return SparseGPSpec(kernel, likelihood)


class FlowRegressor(Validated, ModelRegressor):
    """Inputs flow through a stochastic differential equation before a sparse GP predicts.

    Parameters
    ----------
    diffusion : str or DiffusionSpec, default="wishart"
        Noise of the flow: "wishart" (diffWGP), "gp" (diffGP), "diagonal" (constant), "none" (No noise), or a spec such
        as `wf.diffusions.Wishart(rank=5, white=0.01)`.
    rank : int or None, default=5
        Rank ρ of the diffusion "wishart". It acts as the dimensions of the state where it is larger or None: full rank.
    columns : {"shared", "independent"}, default="shared"
        Whether the ν columns of J in the diffusion "wishart" share one posterior or have their own. For shared columns
        and `sampling="marginal"` the preset says ν (`fast`: 1 up to ten inputs, else ρ, or 5 below 600 rows); a spec
        says its own.
    kernel : str or KernelSpec, default="rbf"
        Kernel of the output GP and, with starting values of its own, of the field: "rbf", "matern12", "matern32",
        "matern52", "linear", "periodic", or a spec from `wishflow.kernels`.
    likelihood : str or LikelihoodSpec, default="gaussian"
        Noise of the targets: "gaussian", "student_t", "poisson", or a spec from `wishflow.likelihoods`.
    n_inducing : int or "auto", default="auto"
        The most inducing points M, of the output GP and of the field. With "auto" 100, and for the sparse GP that a
        flow is mixed with as many as `SparseGPRegressor` has.
    flow_time : float, default=1.0
        Length T of the flow. 0 leaves the inputs where they are.
    state_dim : int, optional
        Dimensions of the state of the flow, at least D: the inputs, and random directions of them, so that a flow has
        room to move what lies together apart. By default that of the preset (`fast`: three for each input, at most 12,
        up to ten inputs and from 600 rows on; else the inputs alone, as in the paper), and the inputs alone where a
        kernel names `active_dims`.
    sampling : {"marginal", "pathwise"}, default="marginal"
        How J is drawn along a path: afresh at each step from its marginals, or once as a function for the whole path,
        which needs a kernel with random features.
    time_dependent : bool, default=False
        Whether drift and diffusion depend on the flow time too.
    preset : {"fast", "paper"} or TrainingSpec, default="fast"
        How the model is trained. A name is a rule of N and D alone: "fast" is one rule for all data sets, "paper" are
        the paper's own settings. Options that are None come from it.
    n_steps : int, optional
        Euler steps of the flow.
    max_iter : int, optional
        The most iterations of the flow. The warm-up of the penalties keeps its share of them.
    batch_size : int, optional
        Rows of a batch, each with `n_train_samples` paths. Where it is not given, `fast` takes eight paths for each of
        250 rows from 2000 rows on.
    learning_rate : float or callable, optional
        Learning rate of Adam, or an optax schedule.
    tol : float, optional
        Least rise of the objective, in nats per row. Where the best mean over 100 iterations has not risen by it in
        five times 100 iterations, the learning rate starts to fall; where it falls already, training ends. 0 switches
        this off.
    n_train_samples : int, optional
        Sample paths for each row in training.
    path_average : {"log", "density"}, optional
        What is averaged over the sample paths of a row in training: log densities, or densities. "log" alone takes one
        path for each row.
    validation_fraction : float, optional
        Part of the rows that is held back from training (`fast`: 0.1; `paper`: 0), from 0 to below 1: at least 10 and
        at most 500 rows, never more than a third. See Notes. With 0 the flow is trained on all rows and kept as it
        ends. Groups are held back as a whole. Where no group keeps these limits, the smallest one is held back, which
        may be up to half of the rows.
    n_predict_samples : int, default=100
        Sample paths for each row in predictions.
    random_state : int, RandomState or None, default=None
        Seed of initialisation, training and prediction. None means 0, so that a fit can be repeated.
    callbacks : Callback or list of Callback, optional
        Callbacks of training, from `wishflow.callbacks` or of your own.
    verbose : int, default=0
        0 is silent, 1 shows a progress bar.
    n_members : int, default=1
        K > 1 fits K members, each without one fold of the rows, and mixes them. See Notes.
    calibrate : {"auto", None}, default="auto"
        With "auto" and Gaussian noise the predictive law is recalibrated where a test says that it is needed: a single
        flow by the rows held back from it, if these are at least 30 (60 for a width that depends on the inputs) or,
        with groups, of as many groups. None turns it off. `preset="paper"` has none.
    drift_posterior : {"point", "gaussian"}, default="point"
        "point" is a fitted drift with the penalty ½‖m_f‖², as in the paper. With "gaussian" its weights have a
        posterior and its full KL divergence, and each path draws a function, so that what is not known of the drift
        widens predictions. The diffusion "gp" takes "point" only.
    checkpoint_dir : str, path or Checkpointing, optional
        Folder for checkpoints of training, so that the same fit goes on where it was killed. Ctrl-C then ends training
        at the next chunk of steps, with `status_` "interrupted" (docs/reliability.md). `wf.Checkpointing` also says how
        often a state is written and how many are kept.
    backend : {None, "loky", "ray", "dask", "slurm"}, default=None
        Where members are trained, one by one: in this process, or as in `wishflow.fit_many`. On a backend they have
        no callbacks.
    backend_params : dict, optional
        Options of the backend.
    hyperprior : {"auto", None}, default="auto"
        With "auto", Gaussian noise and fewer than 250 rows the sparse GP that a flow is mixed with has a weak prior on
        its lengthscales and noise, as in `SparseGPRegressor`. None turns it off. `preset="paper"` has none.

    Attributes
    ----------
    model_ : FlowModel
        The fitted flow, of scaled inputs and targets; with several members the first. Of few rows a SparseGPModel.
    spec_ : FlowSpec or SparseGPSpec
        What `model_` is.
    training_ : TrainingSpec
        How the model was trained: the preset with the options that were given.
    history_ : DataFrame
        One row for each iteration: `objective`, with all penalties at full weight, and its parts. See Notes on `bound`.
    validation_history_ : DataFrame
        Mean log density of the held-back rows in the units of y, after each chunk of training: `step`, `log_density`.
    n_iter_ : int
        Number of iterations.
    status_ : str
        How training ended, the weights of the candidates, and how the law was recalibrated.
    calibration_ : Calibration, dict or None
        The recalibration. None: nothing was changed. With several candidates a dict with one for each.
    directions_ : ndarray
        Random directions that widen the state.
    x_scaler_, y_scaler_ : Scaler
        Scales of inputs and targets.
    seed_ : int
        The seed that `random_state` stood for.
    is_multi_output_ : bool
        Whether `y` had two axes.
    n_features_in_ : int
        Number D of inputs.
    target_names_ : list of str or None
        Names of the targets; None where `y` had none.
    members_ : dict of str to list
        Models of all members by candidate, of those with weight. Only where there were several candidates or members,
        as the following ones.
    member_specs_ : dict of str to Spec
        Specs of the candidates.
    weights_ : dict of str to float
        Weights of the candidates.
    oof_predictions_ : ndarray of shape (N,) or (N, P)
        Mean of each row by the member that has not seen it, before recalibration. Only with `n_members` above 1.
    oof_log_prob_ : ndarray of shape (N,)
        Log density of each row by the member that has not seen it, before recalibration.

    See Also
    --------
    SparseGPRegressor : The sparse GP alone.
    FlowClassifier : The same for labels.
    wishflow.diffusions : Specs of diffusions.

    Notes
    -----
    An input x₀ moves by dx = μ(x) dt + √Σ(x) dB over [0, T], in `n_steps` Euler steps. Targets are y = g(x_T) + noise
    with a sparse Gaussian process g. For "wishart" Σ(x) = L J(x) J(x)ᵀ Lᵀ, with a ρ × ν matrix J of Gaussian processes.

    Held-back rows: their log density decides which state of the flow is kept and when training ends, at the latest
    after seven tenths of `max_iter`. The flow then goes on from that state with all rows. Predictions are those of a
    mixture of the flow and a sparse GP. Both are recalibrated, and `weights_` give held-back rows the highest density
    (with twenty further rows divided equally). With fewer than 30 held-back rows, as below 300 rows by default, no flow
    is trained, and predictions are those of the sparse GP. `validation_fraction=0` trains the flow alone.

    Members: three candidates are mixed in the same way by out-of-fold rows, the flow, a flow without noise, and the
    sparse GP; below 100 rows the sparse GP alone, and with `validation_fraction=0` the flow alone.

    Objective: that of a flow is no bound of the evidence and compares with no other model's
    (`regression.objectives.is_bound` says why). The column `bound` of `history_` is there only for a sparse GP, or
    where the objective of the flow is a bound: with `drift_posterior="gaussian"`, `sampling="pathwise"` and
    `path_average="log"`, and a diffusion that is none of your own.

    References
    ----------
    M. Jørgensen, M. P. Deisenroth and H. Salimbeni. Stochastic differential equations with variational Wishart
    diffusions. ICML 2020.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2.0, 2.0, (40, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    >>> model = wf.FlowRegressor(n_inducing=5, max_iter=20, n_steps=2, n_predict_samples=8).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    >>> mean.shape, std.shape
    ((40,), (40,))
    >>> model.predict_quantiles(X, [0.05, 0.5, 0.95]).shape
    (40, 3)
    >>> bool(np.isfinite(model.log_prob(X, y)).all())
    True
    """

    def __init__(
        self,
        diffusion="wishart",
        rank=5,
        columns="shared",
        kernel="rbf",
        likelihood="gaussian",
        n_inducing="auto",
        flow_time=1.0,
        state_dim=None,
        sampling="marginal",
        time_dependent=False,
        preset="fast",
        n_steps=None,
        max_iter=None,
        batch_size=None,
        learning_rate=None,
        tol=None,
        n_train_samples=None,
        path_average=None,
        validation_fraction=None,
        n_predict_samples=100,
        random_state=None,
        callbacks=None,
        verbose=0,
        n_members=1,
        calibrate="auto",
        drift_posterior="point",
        checkpoint_dir=None,
        backend=None,
        backend_params=None,
        hyperprior="auto",
    ):
        self.diffusion = diffusion
        self.rank = rank
        self.columns = columns
        self.kernel = kernel
        self.likelihood = likelihood
        self.n_inducing = n_inducing
        self.flow_time = flow_time
        self.state_dim = state_dim
        self.sampling = sampling
        self.time_dependent = time_dependent
        self.preset = preset
        self.n_steps = n_steps
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.tol = tol
        self.n_train_samples = n_train_samples
        self.path_average = path_average
        self.validation_fraction = validation_fraction
        self.n_predict_samples = n_predict_samples
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose
        self.n_members = n_members
        self.calibrate = calibrate
        self.drift_posterior = drift_posterior
        self.checkpoint_dir = checkpoint_dir
        self.backend = backend
        self.backend_params = backend_params
        self.hyperprior = hyperprior

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        return flow_training(self, PRESETS, n_rows, n_inputs)

    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        return flow_spec(self, training, likelihood)

    def mean_covariance(self, X: Any) -> np.ndarray:
        """Return the covariance rate of the noise, Σ̄(x) + Λ with Σ̄(x) = E_q Σ(x), in closed form.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N, D, D)
            Σ̄ + Λ at time 0, in the units of X. Of a state that is wider than the inputs (`state_dim`) it is the block
            of the inputs. 0 where no flow was trained.
        """
        n_inputs = self.n_features_in_
        rate = prediction.mean_covariance(self.model_, self._scaled(X))[:, :n_inputs, :n_inputs]
        return rate * self.x_scaler_.scale[:, None] * self.x_scaler_.scale[None]

    def mean_drift(self, X: Any) -> np.ndarray:
        """Return the posterior mean of the drift of the flow.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs.

        Returns
        -------
        ndarray of shape (N, D)
            The drift at time 0, in the units of X. Of a state that is wider than the inputs (`state_dim`) these are the
            coordinates of the inputs. 0 where no flow was trained.
        """
        drift = prediction.mean_drift(self.model_, self._scaled(X))[:, : self.n_features_in_]
        return drift * self.x_scaler_.scale

    def flow_paths(self, X: Any, random_state: Any = 0) -> np.ndarray:
        """Draw one sample of the paths of the rows through the flow.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs, where the paths start.
        random_state : int, RandomState or None, default=0
            Seed of the draw.

        Returns
        -------
        ndarray of shape (n_steps + 1, N, D)
            States at all times, the start included, in the units of X. Of a state that is wider than the inputs
            (`state_dim`) these are the coordinates that start as inputs. Where no flow was trained there are two times,
            and rows do not move.
        """
        Z = self._scaled(X)
        paths = prediction.flow_paths(self.model_, Z, checks.any_seed(random_state))
        return self.x_scaler_.inverse(np.concatenate([Z[None], paths])[..., : self.n_features_in_])

    def plot_flow(self, X: Any, *, features: Any = (0, 1), random_state: Any = 0, ax: Any = None) -> Any:
        """Draw one sample of the paths of the rows through the flow, in the plane of two inputs.

        Rings are where rows start, dots where they end. The path of one input is drawn against the flow time.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Inputs, where the paths start.
        features : pair of int or str, default=(0, 1)
            The two inputs, by number or name.
        random_state : int, RandomState or None, default=0
            Seed of the draw.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        DataError
            If there is no such input.

        See Also
        --------
        flow_paths : The numbers.

        Examples
        --------
        >>> model.plot_flow(X[:50])  # doctest: +SKIP
        """
        return plots.plot_flow(self, X, features, random_state, ax)

    def plot_field(self, X: Any, *, features: Any = (0, 1), n_side: int = 9, ax: Any = None) -> Any:
        """Draw drift and noise of the flow at time 0 over a grid of two inputs.

        An arrow is where the drift leads from its point, and the ellipse one standard deviation of the noise. The title
        says over which times; they are chosen so that both can be seen.

        Parameters
        ----------
        X : array-like of shape (N, D)
            Rows that say which part of the plane is drawn. The other inputs are held at their medians.
        features : pair of int or str, default=(0, 1)
            The two inputs, by number or name.
        n_side : int, default=9
            Points of the grid along each axis.
        ax : Axes, optional
            Where to draw. By default a new figure.

        Returns
        -------
        Axes
            The axes.

        Raises
        ------
        DataError
            If there is no such input, or there is one input alone.

        See Also
        --------
        mean_drift : The arrows as numbers.
        mean_covariance : The ellipses as numbers.

        Examples
        --------
        >>> model.plot_field(X, features=("age", "bmi"))  # doctest: +SKIP
        """
        return plots.plot_field(self, X, features, n_side, ax)
