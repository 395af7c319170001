"""Regressors as probabilistic regressors of skpro, for its pipelines, searches and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import norm
from sklearn.base import clone

from ..likelihoods import GaussianLikelihood
from ..specs.rollback import rolled_back
from .regressors import FlowRegressor, ModelRegressor, SparseGPRegressor

try:
    from skpro.distributions import Empirical, Normal, NormalMixture
    from skpro.regression.base import BaseProbaRegressor
except ImportError as error:
    raise ImportError(
        "wishflow.regression.skpro needs skpro; install it with: pip install 'wishflow[sktime]'"
    ) from error


class ProbaRegressor(BaseProbaRegressor):
    """A regressor of wishflow with the interface of skpro.

    Parameters
    ----------
    estimator : SparseGPRegressor or FlowRegressor
        The regressor, not fitted; it is copied.
    n_draws : int, default=1000
        Draws of a predictive law that is no mixture of normal ones.

    Attributes
    ----------
    estimator_ : SparseGPRegressor or FlowRegressor
        The fitted regressor.

    See Also
    --------
    wishflow.SparseGPRegressor : A regressor.
    wishflow.FlowRegressor : A regressor.

    Notes
    -----
    With Gaussian noise `predict_proba` returns the predictive law itself: `Normal`, or a mixture of normal laws. With
    other noise it returns `n_draws` draws as `Empirical`. Each row and each target has its own law; how targets depend
    on each other is in `estimator_` (`sample_y`, `log_prob`).

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import wishflow as wf
    >>> from wishflow.regression.skpro import ProbaRegressor
    >>> X = pd.DataFrame({"x": np.linspace(-2.0, 2.0, 40)})
    >>> y = pd.DataFrame({"y": np.sin(X["x"])})
    >>> model = ProbaRegressor(wf.SparseGPRegressor(n_inducing=5, max_iter=20)).fit(X, y)
    >>> model.predict_interval(X.head(3), coverage=0.8).shape
    (3, 2)
    """

    _tags = {  # noqa: RUF012  (skpro reads them from the class)
        "authors": "wishflow authors",
        "maintainers": "wishflow authors",
        "capability:multioutput": True,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator, n_draws=1000):
        self.estimator = estimator
        self.n_draws = n_draws
        super().__init__()

    def fit(self, X: Any, y: Any, C: Any = None) -> ProbaRegressor:
        """Fit the regressor, as all regressors of skpro; an error, or Ctrl-C, leaves it as it was.

        Parameters
        ----------
        X : DataFrame
            Inputs.
        y : DataFrame
            Targets.
        C : None
            Censoring, which is not supported.

        Returns
        -------
        ProbaRegressor
            The regressor itself, fitted.
        """
        with rolled_back(self):  # skpro notes the columns of the new data before it calls `_fit`
            return super().fit(X, y, C)

    def _fit(self, X: pd.DataFrame, y: pd.DataFrame) -> ProbaRegressor:
        self.columns_ = y.columns
        self.estimator_: ModelRegressor = clone(self.estimator)
        self.estimator_.fit(_named(X), y.iloc[:, 0] if y.shape[1] == 1 else _named(y))
        return self

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self.estimator_.predict(_named(X)), X.index, self.columns_)

    def _predict_proba(self, X: pd.DataFrame) -> Any:
        shape = {"index": X.index, "columns": self.columns_}
        rows, n_targets = _named(X), len(self.columns_)
        if not isinstance(self.estimator_.model_.likelihood, GaussianLikelihood):
            draws = self.estimator_.sample_y(rows, self.n_draws).reshape(len(X), n_targets, self.n_draws)
            index = pd.MultiIndex.from_product([range(self.n_draws), X.index])
            values = np.moveaxis(draws, -1, 0).reshape(-1, n_targets)
            return Empirical(pd.DataFrame(values, index, self.columns_), **shape)
        means, variances, weights = self.estimator_.predict_components(rows, return_weights=True)
        # (S, N) or (S, N, P) to (N, S, P).
        mu, sigma = (np.moveaxis(a.reshape(len(a), len(X), n_targets), 0, 1) for a in (means, np.sqrt(variances)))
        if len(weights) == 1:
            return Normal(mu[:, 0], sigma[:, 0], **shape)
        return GaussianMixture(np.tile(weights, (len(X), 1)), mu, sigma, **shape)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return small models for skpro's own checks.

        Parameters
        ----------
        parameter_set : str, default="default"
            Name of a set of parameters, which has no effect.

        Returns
        -------
        list of dict
            Parameters of each model.
        """
        flow = {"n_inducing": 5, "max_iter": 2, "n_predict_samples": 8, "calibrate": None, "validation_fraction": 0}
        return [
            {"estimator": SparseGPRegressor(n_inducing=5, max_iter=5)},
            {"estimator": FlowRegressor(**flow)},
            {"estimator": SparseGPRegressor(likelihood="student_t", n_inducing=5, max_iter=5), "n_draws": 50},
        ]


class GaussianMixture(NormalMixture):
    """A mixture of normal laws with E|X − X'| in closed form, so that CRPS is exact.

    That of `skpro.distributions.NormalMixture` takes all components to have one mean.

    Parameters
    ----------
    pi : array of shape (N, S)
        Weights of the components.
    mu : array of shape (N, S, P)
        Means of the components.
    sigma : array of shape (N, S, P)
        Standard deviations of the components.
    index : Index, optional
        Names of the N rows.
    columns : Index, optional
        Names of the P targets.

    Examples
    --------
    >>> from wishflow.regression.skpro import GaussianMixture
    >>> law = GaussianMixture([[0.5, 0.5]], [[[-1.0], [1.0]]], [[[0.1], [0.1]]])
    >>> round(float(law.energy().iloc[0, 0]), 2)
    1.06
    """

    def _energy_self(self) -> Any:
        total = np.zeros(self._mu[:, 0].shape)
        for s in range(self._mu.shape[1]):  # one component beside all others: memory is that of the components
            spread = np.sqrt(self._sigma[:, s, None] ** 2 + self._sigma**2)
            weights = (self._pi[:, s, None] * self._pi)[..., None]
            total += (weights * _mean_distance(self._mu[:, s, None] - self._mu, spread)).sum(axis=1)
        return float(total.sum()) if self.ndim == 0 else total.sum(axis=1, keepdims=True)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> GaussianMixture:
        found = super()._iloc(rowidx, colidx)
        return found if isinstance(found, GaussianMixture) else GaussianMixture(**found.get_params(deep=False))

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> GaussianMixture:
        return GaussianMixture(**super()._iat(rowidx, colidx).get_params(deep=False))


def _mean_distance(m: Float[np.ndarray, "*shape"], s: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """E|N(m, s²)| = 2 s φ(m/s) + m (2 Φ(m/s) − 1)."""
    return 2 * s * norm.pdf(m / s) + m * (2 * norm.cdf(m / s) - 1)


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns with names that are text, as scikit-learn asks."""
    return frame.set_axis([str(name) for name in frame.columns], axis=1)
