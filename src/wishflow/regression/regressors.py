"""`SparseGPRegressor` (SGP) and `FlowRegressor` (No noise, diffGP, diffWGP), used like any scikit-learn regressor."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from typing import Any

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from .. import likelihoods, specs
from ..errors import OptionError
from ..kernels.specs import KERNELS, KernelSpec
from ..likelihoods import LIKELIHOODS, Bernoulli, Categorical, LikelihoodSpec, PoissonLikelihood
from ..specs import checks
from ..training.options import TrainingOptions, preset_spec, with_options
from ..training.specs import TrainingSpec
from . import prediction
from .data import checked_numbers, checked_rows, checked_targets
from .diagnosis import LEVELS, Diagnosis, diagnosis_of
from .estimator import ModelEstimator, Validated, check_average, with_log_rate
from .flow_options import flow_spec, flow_training
from .presets import PRESETS
from .regions import JointRegion
from .specs import SparseGPSpec
from .training import Problem

N_COVARIANCE_DRAWS = 500


class ModelRegressor(MultiOutputMixin, RegressorMixin, ModelEstimator):
    """What the regressors share: y of one or several columns; means, intervals, densities and draws in its units."""

    def fit(self, X: Any, y: Any) -> ModelRegressor:
        """Fit to inputs X (N, D) and targets y (N,) or (N, P); scales come from these rows alone."""
        fitted = copy.copy(self)
        return self._trained(fitted, fitted._prepare(X, y))

    def _prepare(self, X: Any, y: Any, n_rows: int | None = None) -> Problem:
        X, y = checked_rows(self, X, y, multi_output=True, y_numeric=True, ensure_min_samples=2)
        y = checked_numbers(y)
        self.is_multi_output_ = y.ndim == 2
        likelihood = specs.resolve("likelihood", self.likelihood, LIKELIHOODS, LikelihoodSpec)
        if isinstance(likelihood, Bernoulli | Categorical):
            raise OptionError(f"likelihood={self.likelihood!r} is for classes; use FlowClassifier for labels.")
        y = y if y.ndim == 2 else y[:, None]
        likelihoods.build(likelihood, y.shape[1]).validate(y)
        return self._problem(X, y, with_log_rate(likelihood, y), n_rows)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """(N, P, …) as it is for several targets, (N, …) for one."""
        return values if self.is_multi_output_ else values[:, 0]

    def _out_of_fold(self, mean: np.ndarray) -> np.ndarray:
        return self._shaped(mean)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Predictive mean; with `return_std` also the standard deviation, with `return_cov` the covariance of all rows.

        The covariance is between rows, (N, N) for one target and (N, N, P) for several, as in scikit-learn's
        GaussianProcessRegressor; its correlations are those of joint draws (500 of them, or `n_predict_samples` where
        that is more), its variances are the ones `return_std` gives.
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
        """Mean and variance of y of each of S components of the predictive distribution: (S, N), or (S, N, P) for
        several targets; with `return_weights` also their weights (S,).

        The distribution of a row is their mixture, one of normals where the noise is Gaussian; all scores of a row
        follow from it. Components are the sample paths of the members; those of a recalibrated law with tails come
        twice, narrow and wide. Weights are equal unless there are several candidates or tails. S is 1 where the inputs
        are not moved at random.
        """
        Z = self._scaled(X)
        means, variances, weights = prediction.predictive_components(self._law(), Z, self.seed_, self._n_predict())
        means, variances = self.y_scaler_.inverse(means), variances * self.y_scaler_.scale**2
        parts = (means, variances) if self.is_multi_output_ else (means[..., 0], variances[..., 0])
        return (*parts, weights) if return_weights else parts

    def predict_quantiles(self, X: Any, alpha: Any) -> np.ndarray:
        """Quantiles of y, by inverting the predictive distribution: (N, A), or (N, P, A) for several targets."""
        levels = checks.levels("alpha", alpha)
        Z = self._scaled(X)
        quantiles = prediction.predictive_quantiles(self._law(), Z, levels, self.seed_, self._n_predict())
        quantiles = quantiles * self.y_scaler_.scale[:, None] + self.y_scaler_.mean[:, None]
        return self._shaped(quantiles)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central interval with the given coverage: (N, 2), or (N, P, 2) for several targets."""
        level = checks.level("coverage", coverage, "use predict_quantiles for several")
        return self.predict_quantiles(X, [0.5 - level / 2, 0.5 + level / 2])

    def log_prob(self, X: Any, y: Any, average: str = "density") -> np.ndarray:
        """Log predictive density of each row in the units of y, joint over targets, (N,).

        average="density" is the log of the mean density over sample paths (the mixture); "log" the mean of the logs,
        which is the paper's score and kept for comparison.
        """
        check_average(average)
        Z = self._scaled(X)
        y = checked_targets(y, len(Z), len(self.y_scaler_.scale))
        self.model_.likelihood.validate(y)
        return self._log_prob(Z, self.y_scaler_.forward(y), average) - np.log(self.y_scaler_.scale).sum()

    def diagnose(self, X: Any, y: Any) -> Diagnosis:
        """Whether the predictive law fits rows that the model has not seen.

        Parameters
        ----------
        X : array (N, D)
            Inputs that took no part in training.
        y : array (N,) or (N, P)
            Their targets.

        Returns
        -------
        Diagnosis
            PIT and its histogram, coverage and mean width of 50, 80 and 95 % intervals, RMSE, log density, and for
            several targets the correlation of the errors before and after whitening by the predictive covariance.
            `print` shows it in words, `plot` as a figure.

        Warns
        -----
        UserWarning
            Where intervals cover clearly less than their nominal level.
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
        found = diagnosis_of(y, mean, covariance, pit, intervals, log_prob)
        for text in found.warnings:
            warnings.warn(text, UserWarning, stacklevel=2)
        return found

    def conformal_region(self, X: Any, y: Any, coverage: float = 0.9) -> JointRegion:
        """Ellipsoids that contain all targets of a new row at once, with the given probability.

        Parameters
        ----------
        X : array (n, D)
            Inputs of calibration rows: like those to come, and without a part in training.
        y : array (n,) or (n, P)
            Their targets. A coverage of c needs n ≥ c / (1 − c) rows: 9 for 0.9, 99 for 0.99.
        coverage : float
            The probability. It holds whether or not the predictive law is right.
        """
        check_is_fitted(self, "model_")
        fitted = copy.copy(self)  # stays as it is when this estimator is fitted again
        return JointRegion.of(fitted._output_moments, X, y, coverage)

    def _output_moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean (N, P) and covariance over targets (N, P, P), in the units of y."""
        (mean, covariance), scale = self._moments(X), self.y_scaler_.scale
        return self.y_scaler_.inverse(mean), covariance * scale[:, None] * scale

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Joint draws of y at the rows: (N, S), or (N, P, S) for several targets, as scikit-learn shapes them."""
        check_is_fitted(self, "model_")
        n_samples = checks.positive_int("n_samples", n_samples)
        return self._shaped(np.moveaxis(self._draws(X, n_samples, checks.any_seed(random_state)), 0, -1))

    def _draws(self, X: Any, n_samples: int, seed: int) -> np.ndarray:
        draws = prediction.joint_samples(self._law(), self._scaled(X), seed, n_samples, self._n_predict(), self.seed_)
        return self.y_scaler_.inverse(draws)


class SparseGPRegressor(ModelRegressor):
    """Sparse Gaussian process regression with several outputs and non-Gaussian noise (SGP).

    With Gaussian noise the collapsed bound is maximised by L-BFGS where N allows; otherwise natural gradients and Adam.

    With Gaussian noise and calibrate="auto" the predictive law is recalibrated where a test says that it is needed: its
    width may then depend on the inputs, and its tails may be heavier than those of a normal. Each row is predicted from
    the others for that; kernel and noise are not refitted. `status_` says what was found, `calibration_` holds it
    (None: nothing). `calibrate=None` turns it off; `preset="paper"` and more than 50,000 rows have none.

    n_members=K fits K members, each without one fold of the rows. The predictive law is their mixture.
    `oof_predictions_` and `oof_log_prob_` are the mean and the log density of each row by the member that has not seen
    it, before recalibration; these predictions recalibrate the mixture.

    `history_` has one row for each iteration: `objective`, its parts, and `bound`, the same number, which for a sparse
    GP is a lower bound of the log evidence of the scaled targets (an estimate of it where steps see minibatches).
    """

    def __init__(
        self,
        n_inducing=100,
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

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        """There is only the phase of the output GP here, so `max_iter` and `learning_rate` are those of that phase."""
        options = TrainingOptions(
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            tol=self.tol,
            calibrate=self.calibrate,
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

    diffusion: "wishart" (diffWGP), "gp" (diffGP), "diagonal", "none" (No noise), or a spec such as
    `wf.diffusions.Wishart(rank=5, white=0.01)`. Options that are None come from the preset, a rule of N and D alone.
    For "wishart" with shared columns it says ν as well (`fast`: 1 up to ten inputs, else ρ); a spec says its own.
    The state of a flow has `state_dim` dimensions: the inputs, and random directions of them, so that a flow has room
    to move what lies together apart (`fast`: three for each input, at most 12, up to ten inputs and from 600 rows on;
    else the inputs alone, as in the paper, and where a kernel names `active_dims`).
    From 2000 rows on `fast` takes eight paths for each of 250 rows; a `batch_size` that is given counts rows, each with
    `n_train_samples` paths, and `path_average="log"` alone takes one path for each row.
    `validation_fraction` of the rows (`fast`: 0.1; `paper`: 0) are held back from training: at least 10 and at most 500
    of them, never more than a third. Their log density decides which state of the flow is kept and when training ends,
    at the latest after seven tenths of `max_iter`; the flow then goes on from that state with all rows. A flow that
    does not predict them better than the sparse GP alone becomes that GP, fitted to all rows. `status_`
    says what was kept, `validation_history_` holds the densities. With 0 the flow is trained on all rows and kept as it
    ends.

    `history_` has one row for each iteration: `objective`, with all penalties at full weight, and its parts. That of a
    flow is no bound of the evidence and compares with no other model's (`regression.objectives.is_bound` says why); the
    column `bound` is there only where the sparse GP was kept, in its rows.

    drift_posterior: "point", a fitted drift with the penalty ½‖m_f‖², as in the paper, or "gaussian": its weights have
    a posterior and its full KL divergence, and each path draws a function, so that what is not known of the drift
    widens predictions. With `sampling="pathwise"` and `path_average="log"` the objective is then a bound.

    `calibrate` and `n_members` are those of `SparseGPRegressor`. A single flow is recalibrated by the rows held back
    from it, if these are at least 30 (60 for a width that depends on the inputs). With K members three
    candidates are fitted and mixed: the flow, a flow without noise, and the sparse GP (the flow alone with
    `validation_fraction=0`). Each is recalibrated, `calibration_` has one for each; `weights_` are the weights of
    highest out-of-fold density. `members_` has all of them; `model_` is the first flow.
    """

    def __init__(
        self,
        diffusion="wishart",
        rank=5,
        columns="shared",
        kernel="rbf",
        likelihood="gaussian",
        n_inducing=100,
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

    def _training(self, n_rows: int, n_inputs: int) -> TrainingSpec:
        return flow_training(self, PRESETS, n_rows, n_inputs)

    def _model_spec(self, training: TrainingSpec, likelihood: LikelihoodSpec) -> Any:
        return flow_spec(self, training, likelihood)

    def mean_covariance(self, X: Any) -> np.ndarray:
        """Σ̄(x) = E_q Σ(x) at time 0 in the units of X, (N, D, D), in closed form.

        Of a state that is wider than the inputs (`state_dim`) it is the block of the inputs.
        """
        n_inputs = self.n_features_in_
        rate = prediction.mean_covariance(self.model_, self._scaled(X))[:, :n_inputs, :n_inputs]
        return rate * self.x_scaler_.scale[:, None] * self.x_scaler_.scale[None]

    def flow_paths(self, X: Any, random_state: Any = 0) -> np.ndarray:
        """One sample of the paths of the rows through the flow, in the units of X: (n_steps + 1, N, D).

        Of a state that is wider than the inputs (`state_dim`) these are the coordinates that start as inputs.
        """
        Z = self._scaled(X)
        paths = prediction.flow_paths(self.model_, Z, checks.any_seed(random_state))
        return self.x_scaler_.inverse(np.concatenate([Z[None], paths])[..., : self.n_features_in_])
