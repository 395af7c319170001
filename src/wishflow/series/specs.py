"""Specs of models of time series."""

from __future__ import annotations

import dataclasses

from ..errors import OptionError, unknown_option
from ..kernels.specs import RBF, KernelSpec
from ..specs import Spec, known
from ..wishart.specs import DiffusionSpec, Wishart, check_drift_posterior

DRIFTS = ("linear+gp", "gp", "linear", "none")
INNOVATIONS = ("gaussian", "student_t", "jumps")


READOUTS = ("linear", "gp")


@known
@dataclasses.dataclass(frozen=True)
class Latent(Spec):
    """The series is seen through a readout: y | x ~ N(g(x), AΣ(x)Aᵀ + Λ), x in R^dim.

    `readout`: g linear, or linear plus a sparse GP. `has_coupled_noise`: A is learnt; otherwise it is zero.
    """

    dim: int
    readout: str = "linear"
    has_coupled_noise: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int) or self.dim < 1:
            raise OptionError(f"dim={self.dim!r} given to Latent; expected a whole number of at least 1.")
        if self.readout not in READOUTS:
            raise unknown_option("readout", self.readout, READOUTS)


Lags = int | tuple[int, ...]


# As many as the rows after which a window has forgotten how it started (`windows.BURN_IN`), and the next one.
JOINT_ROWS = 6


def chosen_lags(lags: Lags) -> tuple[int, ...]:
    """A number p stands for the lags 1, …, p."""
    return tuple(range(1, lags + 1)) if isinstance(lags, int) else lags


def memory_of(lags: Lags) -> int:
    """How many rows a step looks back at: the longest lag."""
    return chosen_lags(lags)[-1]


def run_of(lags: Lags) -> int:
    """How many lags follow each other from 1 on."""
    return sum(lag == place for place, lag in enumerate(chosen_lags(lags), start=1))


def joint_run_of(lags: Lags) -> int:
    """How many rows at the lags 1, 2, … without a gap keep their covariances whatever the number of series."""
    return min(run_of(lags), JOINT_ROWS)


@known
@dataclasses.dataclass(frozen=True)
class DynamicsSpec(Spec):
    """A time series as an SDE: dx = μ(x, lags, u) dt + √(Σ(x, u) + Λ) dB.

    The state x is what is observed, or `latent`. `lags` are the rows that the step to the next one looks back at: a
    number p for 1, …, p, or chosen ones that begin with 1. `drift` says which parts μ has; `white_noise` whether Λ is
    constant or depends on the state; `innovations` whether the noise of a step is "gaussian", "student_t", or
    has "jumps" (found by `fit`, not trained); `step` is the longest Euler step in units of time (the median gap); gaps
    above `max_gap` steps cut the series.
    `drift_posterior` says whether the weights of the GP drift are a point estimate or have a Gaussian posterior.
    """

    kernel: KernelSpec = RBF()
    drift: str = "linear+gp"
    diffusion: DiffusionSpec = Wishart(rank=10, unit_rows=False)
    white_noise: str = "constant"
    innovations: str = "gaussian"
    lags: Lags = 1
    step: float = 1.0
    max_gap: float = 24.0
    objective: str = "transition"
    latent: Latent | None = None
    drift_posterior: str = "point"

    def __post_init__(self) -> None:
        check_drift_posterior(self.drift_posterior, self.diffusion)
        if self.drift_posterior != "point" and (self.latent is not None or self.objective == "rollout"):
            raise OptionError(
                f"drift_posterior={self.drift_posterior!r} given with a latent state or the rollout objective; "
                'expected objective="transition" without latent_dim: use drift_posterior="point" here.'
            )
        if self.latent is not None and memory_of(self.lags) > 1:
            raise OptionError(f"lags={self.lags} with a latent state; it carries the memory itself: use lags=1.")
        if self.step != 1.0 and memory_of(self.lags) > 1:
            raise OptionError(
                f"step={self.step!r} with lags={self.lags}; lags above 1 count rows, and need a step from each row to "
                "the next: use step=1.0, or lags=1."
            )
        for name, choices in (
            ("drift", DRIFTS),
            ("white_noise", ("constant", "state")),
            ("innovations", INNOVATIONS),
            ("objective", ("transition", "rollout")),
        ):
            if getattr(self, name) not in choices:
                raise unknown_option(name, getattr(self, name), choices)
        if self.innovations != "gaussian" and (self.latent is not None or self.objective == "rollout"):
            what = "a latent state, whose filter" if self.latent is not None else 'objective="rollout", which'
            other = "latent_dim=None" if self.latent is not None else 'objective="transition"'
            raise OptionError(
                f'innovations={self.innovations!r} with {what} is Gaussian; use innovations="gaussian", or {other}.'
            )
