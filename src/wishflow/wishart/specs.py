"""Diffusion specs, and their names."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..errors import OptionError, unknown_option
from ..inducing.specs import check_posterior
from ..specs import Spec


@dataclasses.dataclass(frozen=True)
class DiffusionSpec(Spec):
    """Base of the specs of diffusions: the covariance rate Σ(x) of the flow.

    A subclass that is registered is an option of the estimators (docs/extend.md).

    See Also
    --------
    wishflow.register : Add a spec of your own.

    Examples
    --------
    >>> from wishflow.diffusions import DiffusionSpec, Wishart
    >>> isinstance(Wishart(), DiffusionSpec)
    True
    """

    is_part: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class NoDiffusion(DiffusionSpec):
    """No noise, Σ = 0: the flow is an ordinary differential equation.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(diffusion=wf.diffusions.NoDiffusion())  # or diffusion="none"
    """


@dataclasses.dataclass(frozen=True)
class GPDiffusion(DiffusionSpec):
    """Drift and Σ are mean and variance of one Gaussian field (diffGP, Hegde et al. 2019).

    Parameters
    ----------
    posterior : {"rotated", "full", "structured", "diagonal"}, default="rotated"
        Form of the covariances of q, as in `Wishart`.

    Raises
    ------
    OptionError
        If `posterior` is not known.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(diffusion=wf.diffusions.GP(posterior="full"))
    """

    posterior: str = "rotated"

    def __post_init__(self) -> None:
        check_posterior(self.posterior)


@dataclasses.dataclass(frozen=True)
class Diagonal(DiffusionSpec):
    """Constant and independent noise: Σ = 0, and white noise Λ, a diagonal matrix.

    Parameters
    ----------
    white : float, default=0.01
        Starting value of the entries of Λ.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.FlowRegressor(diffusion=wf.diffusions.Diagonal(white=0.1))
    """

    white: float = 0.01


@dataclasses.dataclass(frozen=True)
class ConstantDiffusion(DiffusionSpec):
    """Correlated noise that is the same everywhere, Σ = L Lᵀ.

    With a linear drift a series is then a vector auto-regression.

    Examples
    --------
    >>> import wishflow as wf
    >>> model = wf.WishartForecaster(drift="linear", diffusion=wf.diffusions.Constant())
    """


@dataclasses.dataclass(frozen=True)
class Wishart(DiffusionSpec):
    """Wishart process, Σ(x) = L J(x) J(x)ᵀ Lᵀ, with J a ρ × ν matrix of Gaussian processes (diffWGP).

    Parameters
    ----------
    rank : int or None, default=5
        Rank ρ. It acts as D where it is larger or None.
    dof : int, optional
        Degrees of freedom ν. It is ρ where None; a preset may say another one for the name "wishart".
    columns : {"shared", "independent"}, default="shared"
        Whether the ν columns of J share one posterior, or have posteriors of their own.
    white : float, optional
        Starting value of Λ. None for no Λ.
    unit_rows : bool, default=True
        Whether the rows of L have unit norm.
    posterior : {"rotated", "full", "structured", "diagonal"}, default="rotated"
        Form of the covariances of q: "full"; "rotated", in which they have their eigenvectors in common and a step
        costs a fraction; "structured", in which they have one unit lower triangular factor in common; or "diagonal"
        (mean field). Names of diffusions have the form of their estimator: that of the preset for flows, "structured"
        for series.

    Raises
    ------
    OptionError
        If an option has a value that is not known.

    Examples
    --------
    >>> import wishflow as wf
    >>> diffusion = wf.diffusions.Wishart(rank=3, white=0.01)
    >>> diffusion.rank_and_dof(dim=2)
    (2, 2)
    >>> model = wf.FlowRegressor(diffusion=diffusion)
    """

    rank: int | None = 5
    dof: int | None = None
    columns: str = "shared"
    white: float | None = None
    unit_rows: bool = True
    posterior: str = "rotated"

    def __post_init__(self) -> None:
        check_posterior(self.posterior)
        if self.columns not in ("shared", "independent"):
            raise unknown_option("columns", self.columns, ("shared", "independent"))
        for name in ("rank", "dof"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
                raise OptionError(
                    f"{name}={value!r} given to the Wishart diffusion; expected a whole number of at least 1, or None."
                )

    def rank_and_dof(self, dim: int) -> tuple[int, int]:
        """Return ρ and ν in D dimensions.

        Parameters
        ----------
        dim : int
            The number D of dimensions of the state.

        Returns
        -------
        rank : int
            The rank ρ.
        dof : int
            The degrees of freedom ν.
        """
        rank = dim if self.rank is None else min(self.rank, dim)
        return rank, rank if self.dof is None else self.dof


DRIFT_POSTERIORS = ("point", "gaussian")


def check_drift_posterior(posterior: str, diffusion: DiffusionSpec) -> None:
    if posterior not in DRIFT_POSTERIORS:
        raise unknown_option("drift_posterior", posterior, DRIFT_POSTERIORS)
    if posterior != "point" and isinstance(diffusion, GPDiffusion):
        raise OptionError(
            f"drift_posterior={posterior!r} given with the 'gp' diffusion, whose drift is the mean of a posterior and "
            'whose noise is its variance; use drift_posterior="point", or another diffusion.'
        )


def has_point_drift(diffusion: DiffusionSpec, posterior: str) -> bool:
    """Whether the Gaussian-process drift beside a diffusion is a point estimate: its weights m_f are fitted (MAP) and
    not integrated out. That of diffGP is part of its f.
    """
    return posterior == "point" and not isinstance(diffusion, GPDiffusion)


def has_exact_law(diffusion: DiffusionSpec) -> bool:
    """Whether noise and penalty of a diffusion are those of one probabilistic model.

    diffGP takes the posterior variance of f for the variance of Brownian noise, which no prior of f implies; of a
    diffusion of a user nothing is known.
    """
    return type(diffusion) in (NoDiffusion, Diagonal, Wishart)


DIFFUSIONS: dict[str, DiffusionSpec] = {
    "none": NoDiffusion(),
    "gp": GPDiffusion(),
    "diagonal": Diagonal(),
    "constant": ConstantDiffusion(),
    "wishart": Wishart(),
}
