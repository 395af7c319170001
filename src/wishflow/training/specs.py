"""How a model is trained, as plain values."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import OptionError, unknown_option
from ..inducing.specs import check_posterior
from ..specs import Spec, known

FIXED_INDUCING = ("none", "field", "all")
# Fields of version 0.1: those that are called otherwise now, and those that are gone.
RENAMED = {"counts_paths": "batch_counts_paths"}
RETIRED = ("falls_back", "flow_noise_share")


@known
@dataclasses.dataclass(frozen=True)
class TrainingSpec(Spec):
    """How a model is trained; an instance is a preset.

    All numbers are in standardised units. Options for regression and classification say so.

    Parameters
    ----------
    max_iter : int
        The most iterations of the flow, or of a series.
    batch_size : int
        Rows of a batch.
    learning_rate : float
        Highest learning rate of Adam.
    n_steps : int
        Euler steps of a flow.
    n_train_samples : int
        Sample paths for each row.
    warm_iter : int
        Iterations of the warm start, in which the output GP is trained alone. See Notes.
    sgp_iter : int
        Iterations where there is no flow.
    warm_rate : float
        Learning rate of the warm start, where it takes stochastic steps.
    kl_warmup : int
        Iterations over which the weight of the penalties rises to one.
    collapsed : bool, default=True
        Whether the warm start maximises the collapsed bound by L-BFGS, where the likelihood is Gaussian.
    collapsed_limit : int, default=50000
        The most rows for that.
    natural_rate : float or None, default=0.1
        The step γ of natural gradients for q of the output. None: Adam for it too.
    decay : float, default=1.0
        The part of the iterations over which the rate falls to zero by a cosine.
    rate_warmup : int, default=0
        Iterations over which the learning rate rises to its highest value.
    tolerance : float, default=0.0
        Least rise of the objective, in nats per row. Where the best mean over 100 iterations has not risen by it in
        five times 100 iterations, the learning rate starts to fall; where it falls already, training ends. 0 switches
        this off.
    flow_dtype : {"float32", "float64"}, default="float32"
        Type of the states of a flow in training.
    output_lengthscale : float, default=2.0
        Starting lengthscale of the output GP.
    sgp_lengthscale : float, default=2.0
        Starting lengthscale where there is no flow.
    output_variance : float, default=1.0
        Starting variance of the output GP.
    noise_variance : float, default=0.1
        Starting variance of Gaussian noise.
    field_lengthscale : float, default=2.0
        Starting lengthscale of the field.
    field_variance : float, default=0.01
        Starting variance of the field.
    path_average : {"log", "density"}, default="log"
        What is averaged over `n_train_samples` paths: log densities, or densities
        (`regression.objectives.negative_objective`).
    field_inducing : int, optional
        Inducing points of a flow's field. None: as many as the output, which is also the most.
    fixed_inducing : {"none", "field", "all"}, default="none"
        Whose inducing points stochastic steps do not move.
    dof : int, optional
        Degrees of freedom ν of the diffusion "wishart". None: its rank.
    batch_counts_paths : bool, default=False
        Whether a batch is of `batch_size` paths, not rows.
    state_dim : int, optional
        Dimensions of a flow's state. None: those of the inputs.
    posterior : {"structured", "full", "rotated", "diagonal"}, default="structured"
        Form of the covariances of q of the diffusions "wishart" and "gp", as in `wishflow.diffusions.Wishart`.
    validation_fraction : float, default=0.0
        Part of the rows that is held back from the training of a flow. The state that predicts them best is kept, or
        the sparse GP alone where the flow predicts them no better. 0: no rows are held back, and the flow is kept as it
        ends. For regression and classification.
    calibrate : bool, default=False
        Whether the predictive law is recalibrated by rows that its models have not seen (`regression.calibration`). For
        regression.
    hyperprior : bool, default=False
        Whether a sparse GP with Gaussian noise has a weak prior on its noise, and on the lengthscales of its stationary
        kernels, where the collapsed bound is maximised (`regression.hyperprior`). For regression.

    Raises
    ------
    OptionError
        If a value is outside its range.

    Notes
    -----
    The flow is preceded by a warm start of the output GP alone: `warm_iter` iterations of L-BFGS on the collapsed bound
    where `collapsed` is set, the likelihood is Gaussian and N ≤ `collapsed_limit`; otherwise of stochastic steps at
    `warm_rate`. Where there is no flow that is the whole fit, with `sgp_iter` iterations from `sgp_lengthscale`, or,
    with the collapsed bound, from an exact GP of some of the rows that has been fitted from there.

    Examples
    --------
    The spec that a fit has used is a preset for others:

    >>> import dataclasses
    >>> import numpy as np
    >>> import wishflow as wf
    >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
    >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
    >>> training = dataclasses.replace(model.training_, noise_variance=0.01)
    >>> other = wf.SparseGPRegressor(preset=training)
    """

    max_iter: int
    batch_size: int
    learning_rate: float
    n_steps: int
    n_train_samples: int
    warm_iter: int
    sgp_iter: int
    warm_rate: float
    kl_warmup: int
    collapsed: bool = True
    collapsed_limit: int = 50_000
    natural_rate: float | None = 0.1
    decay: float = 1.0
    rate_warmup: int = 0
    tolerance: float = 0.0
    flow_dtype: str = "float32"
    output_lengthscale: float = 2.0
    sgp_lengthscale: float = 2.0
    output_variance: float = 1.0
    noise_variance: float = 0.1
    field_lengthscale: float = 2.0
    field_variance: float = 0.01
    path_average: str = "log"
    field_inducing: int | None = None
    fixed_inducing: str = "none"
    dof: int | None = None
    batch_counts_paths: bool = False
    state_dim: int | None = None
    posterior: str = "structured"
    validation_fraction: float = 0.0
    calibrate: bool = False
    hyperprior: bool = False

    def __post_init__(self) -> None:
        if self.fixed_inducing not in FIXED_INDUCING:
            raise unknown_option("fixed_inducing", self.fixed_inducing, FIXED_INDUCING)
        if self.path_average not in ("log", "density"):
            raise unknown_option("path_average", self.path_average, ("log", "density"))
        check_posterior(self.posterior)
        if self.flow_dtype not in ("float32", "float64"):
            raise unknown_option("flow_dtype", self.flow_dtype, ("float32", "float64"))
        limits = {name: 1 for name in ("batch_size", "n_steps", "n_train_samples")}
        limits |= {name: 0 for name in ("max_iter", "warm_iter", "sgp_iter", "kl_warmup", "rate_warmup", "tolerance")}
        for name, lowest in limits.items():
            if not getattr(self, name) >= lowest:
                raise OptionError(f"{name}={getattr(self, name)!r} given to TrainingSpec; expected at least {lowest}.")
        for name, is_right in (
            ("learning_rate", self.learning_rate > 0),
            ("decay", 0 <= self.decay <= 1),
            ("validation_fraction", 0 <= self.validation_fraction < 1),
        ):
            if not is_right:
                raise OptionError(
                    f"{name}={getattr(self, name)!r} given to TrainingSpec; expected a rate above 0, a decay from 0 to "
                    "1, and a validation fraction from 0 to below 1."
                )

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Spec:
        fields = {RENAMED.get(name, name): value for name, value in fields.items() if name not in RETIRED}
        return super().from_fields(fields)

    @property
    def averages_logs(self) -> bool:
        """Whether the objective is a mean over draws of log densities; of one draw it is, whatever `path_average`."""
        return self.path_average == "log" or self.n_train_samples == 1

    def batch_rows(self, n_samples: int) -> int:
        """Return how many rows a batch has.

        Parameters
        ----------
        n_samples : int
            Sample paths for each row.

        Returns
        -------
        int
            The number of rows.
        """
        return max(1, self.batch_size // n_samples) if self.batch_counts_paths else self.batch_size

    def without_flow(self) -> TrainingSpec:
        """Return the spec for a sparse GP alone: the phase of the output is the whole fit.

        Returns
        -------
        TrainingSpec
            The spec.
        """
        return dataclasses.replace(
            self, warm_iter=self.sgp_iter, output_lengthscale=self.sgp_lengthscale, state_dim=None
        )
