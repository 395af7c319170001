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
    """How a model is trained. All numbers are in standardised units.

    The flow is preceded by a warm start of the output GP alone: `warm_iter` iterations of L-BFGS on the collapsed bound
    where `collapsed` is set, the likelihood is Gaussian and N ≤ `collapsed_limit`; otherwise of stochastic steps at
    `warm_rate`. Where there is no flow that is the whole fit, with `sgp_iter` iterations from `sgp_lengthscale`.
    `natural_rate` is the step γ of natural gradients for q of the output (None: Adam for it too). `decay` is the part
    of the iterations over which the rate falls to zero by a cosine; `tolerance` (nats per row and 100 iterations) ends
    the constant part early once the objective no longer rises. `path_average` says what is averaged over
    `n_train_samples` paths (`regression.objectives.negative_objective`). With `batch_counts_paths` a batch is of
    `batch_size` paths, not rows. A flow's field has `field_inducing` inducing points (None: as many as the output,
    which is also the most); stochastic steps do not move those named by `fixed_inducing` ("none", "field", "all").
    `dof` are the degrees of freedom ν of the diffusion "wishart" (None: its rank). `validation_fraction` of the rows
    are held back from the training of a flow: the state that predicts them best is kept, or the sparse GP alone where
    the flow predicts them no better (0: no rows are held back, and the flow is kept as it ends). With `calibrate` the
    predictive law is recalibrated by rows that its models have not seen (`regression.calibration`). `state_dim` are the
    dimensions of a flow's state (None: those of the inputs). `posterior` is the form of the covariances of q of the
    diffusions "wishart" and "gp" (`Wishart`). These are for regression and classification.
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
        """How many rows a batch has where each has `n_samples` paths."""
        return max(1, self.batch_size // n_samples) if self.batch_counts_paths else self.batch_size

    def without_flow(self) -> TrainingSpec:
        """For a sparse GP alone: the phase of the output is the whole fit."""
        return dataclasses.replace(
            self, warm_iter=self.sgp_iter, output_lengthscale=self.sgp_lengthscale, state_dim=None
        )
