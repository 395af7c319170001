"""Specs of the sparse GP and of the flow."""

from __future__ import annotations

import dataclasses

from ..errors import OptionError, unknown_option
from ..kernels.specs import RBF, KernelSpec
from ..likelihoods.specs import Gaussian, LikelihoodSpec
from ..specs import Spec, known
from ..wishart.specs import DiffusionSpec, NoDiffusion, Wishart, check_drift_posterior


@known
@dataclasses.dataclass(frozen=True)
class SparseGPSpec(Spec):
    """A sparse GP with a likelihood (SGP)."""

    kernel: KernelSpec = RBF()
    likelihood: LikelihoodSpec = Gaussian()


@known
@dataclasses.dataclass(frozen=True)
class FlowSpec(Spec):
    """Inputs flow through an SDE over [0, flow_time] in n_steps Euler steps; a sparse GP predicts from where they end.

    `drift_posterior` says whether the weights of the drift are a point estimate or have a Gaussian posterior.
    `kernel` is the one of the output GP and, with starting values of its own, of the field.
    """

    kernel: KernelSpec = RBF()
    likelihood: LikelihoodSpec = Gaussian()
    diffusion: DiffusionSpec = Wishart()
    flow_time: float = 1.0
    n_steps: int = 20
    sampling: str = "marginal"
    time_dependent: bool = False
    drift_posterior: str = "point"

    def __post_init__(self) -> None:
        check_drift_posterior(self.drift_posterior, self.diffusion)
        if self.sampling not in ("marginal", "pathwise"):
            raise unknown_option("sampling", self.sampling, ("marginal", "pathwise"))
        if isinstance(self.n_steps, bool) or int(self.n_steps) != self.n_steps or self.n_steps < 1:
            raise OptionError(
                f"n_steps={self.n_steps!r} given to a flow; expected a whole number of at least 1 "
                "(flow_time=0 leaves the inputs where they are)."
            )

    @property
    def is_stochastic(self) -> bool:
        """Whether inputs are moved at random."""
        return not isinstance(self.diffusion, NoDiffusion) or self.drift_posterior != "point"
