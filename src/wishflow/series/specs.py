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
    """A series seen through a readout of a latent state: y | x ~ N(g(x), AΣ(x)Aᵀ + Λ).

    Parameters
    ----------
    dim : int
        Dimensions of the state x.
    readout : {"linear", "gp"}, default="linear"
        The readout g: linear, or linear plus a sparse Gaussian process.
    has_coupled_noise : bool, default=False
        Whether A is learnt. Otherwise it is zero.

    Raises
    ------
    OptionError
        If `dim` is no whole number of at least 1, or `readout` is not known.

    Examples
    --------
    >>> import wishflow as wf
    >>> forecaster = wf.WishartForecaster(latent_dim=wf.series.Latent(2, readout="gp"))
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


LEAST_STEP = 1e-4
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

    The state x is the observed series itself, or latent; u are covariates. `WishartForecaster.spec_` is such a spec.

    Parameters
    ----------
    kernel : KernelSpec, default=RBF()
        Kernel of the Gaussian processes in drift and diffusion.
    drift : {"linear+gp", "gp", "linear", "none"}, default="linear+gp"
        Parts of μ.
    diffusion : DiffusionSpec, default=Wishart(rank=10, unit_rows=False)
        The noise Σ.
    white_noise : {"constant", "state"}, default="constant"
        Whether Λ is constant or depends on the state.
    innovations : {"gaussian", "student_t", "jumps"}, default="gaussian"
        Law of the noise of a step. Jumps are not trained but found by `WishartForecaster.fit`: a share of the steps, at
        most a tenth, is some times as wide as the others, with the same covariance.
    lags : int or tuple of int, default=1
        Rows that the step to the next one looks back at: a number p for 1, …, p, or chosen ones that begin with 1.
    step : float, default=1.0
        The longest Euler step, in units of time (the median gap).
    max_gap : float, default=24.0
        Gaps above this number of steps cut the series.
    objective : {"transition", "rollout"}, default="transition"
        What is maximised: densities of rows given those before them, or of free simulations.
    latent : Latent, optional
        The latent state. None: the series is the state.
    drift_posterior : {"point", "gaussian"}, default="point"
        Whether the weights of the GP drift are a point estimate or have a Gaussian posterior.

    Raises
    ------
    OptionError
        If a value is not known, or two values do not go together.

    Examples
    --------
    >>> import wishflow as wf
    >>> spec = wf.series.DynamicsSpec(drift="linear", lags=(1, 2, 24))
    >>> spec.innovations
    'gaussian'
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
        if isinstance(self.step, int | float) and not self.step >= LEAST_STEP:
            raise OptionError(
                f"step={self.step!r} given; expected at least {LEAST_STEP}: a gap takes 1/step Euler steps in training "
                "and in forecasts."
            )
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
