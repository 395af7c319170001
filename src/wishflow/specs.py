"""What a user asks for: frozen dataclasses of plain Python values, with JSON both ways. No JAX here.

A spec says what a part is (`RBF(lengthscale=2.0)`), not its arrays; `build` beside each module class makes the
arrays once the shapes of the data are known. Every spec is hashable, so it can be a static argument of a compiled
program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from .errors import OptionError, unknown_option


@dataclasses.dataclass(frozen=True)
class Spec:
    """Base of all specs: equality, hash and JSON come from the fields."""

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain values: the class name under "kind", then the fields."""
        fields = {f.name: _value_to_json(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"kind": type(self).__name__, **fields}


def _value_to_json(value: Any) -> Any:
    if isinstance(value, Spec):
        return value.to_json()
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    return value


# --- kernels ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class KernelSpec(Spec):
    """A covariance function. `a + b` and `a * b` make sums and products."""

    def __add__(self, other: KernelSpec) -> Sum:
        return Sum(_flatten(Sum, self, other))

    def __mul__(self, other: KernelSpec) -> Product:
        return Product(_flatten(Product, self, other))


@dataclasses.dataclass(frozen=True)
class StationaryKernelSpec(KernelSpec):
    """Starting values of a stationary kernel; `None` leaves them to the model that uses it.

    `ard` gives each input its own lengthscale. `active_dims` picks the inputs the kernel sees (all by default).
    """

    variance: float | None = None
    lengthscale: float | None = None
    ard: bool = True
    active_dims: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class RBF(StationaryKernelSpec):
    """k(x, y) = s² exp(−½ r²), r² = Σ_d (x_d − y_d)² / ℓ_d²."""


@dataclasses.dataclass(frozen=True)
class Matern12(StationaryKernelSpec):
    """k(x, y) = s² exp(−r)."""


@dataclasses.dataclass(frozen=True)
class Matern32(StationaryKernelSpec):
    """k(x, y) = s² (1 + √3 r) exp(−√3 r)."""


@dataclasses.dataclass(frozen=True)
class Matern52(StationaryKernelSpec):
    """k(x, y) = s² (1 + √5 r + 5r²/3) exp(−√5 r)."""


@dataclasses.dataclass(frozen=True)
class Periodic(StationaryKernelSpec):
    """k(x, y) = s² exp(−2 Σ_d sin²(π (x_d − y_d) / p_d) / ℓ_d²)."""

    period: float = 1.0


@dataclasses.dataclass(frozen=True)
class Linear(KernelSpec):
    """k(x, y) = Σ_d s²_d x_d y_d; with `ard` each input has its own variance."""

    variance: float | None = None
    ard: bool = False
    active_dims: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Sum(KernelSpec):
    """k = Σ_i k_i."""

    parts: tuple[KernelSpec, ...] = ()


@dataclasses.dataclass(frozen=True)
class Product(KernelSpec):
    """k = Π_i k_i."""

    parts: tuple[KernelSpec, ...] = ()


def names_dims(kernel: Any) -> bool:
    """Whether a kernel, or a part of it, is one of inputs that it names."""
    parts = kernel.parts if isinstance(kernel, Sum | Product) else ()
    return getattr(kernel, "active_dims", None) is not None or any(map(names_dims, parts))


def _flatten(kind: type, *terms: KernelSpec) -> tuple[KernelSpec, ...]:
    return tuple(part for term in terms for part in (term.parts if isinstance(term, kind) else (term,)))  # type: ignore[attr-defined]


# --- diffusions ------------------------------------------------------------------------------


POSTERIORS = ("full", "structured", "rotated", "diagonal")


def _check_posterior(name: str) -> None:
    if name not in POSTERIORS:
        raise unknown_option("posterior", name, POSTERIORS)


@dataclasses.dataclass(frozen=True)
class DiffusionSpec(Spec):
    """The covariance rate Σ(x) of the flow."""


@dataclasses.dataclass(frozen=True)
class NoDiffusion(DiffusionSpec):
    """Σ = 0: the flow is an ordinary differential equation ("No noise")."""


@dataclasses.dataclass(frozen=True)
class GPDiffusion(DiffusionSpec):
    """Drift and Σ are mean and variance of one Gaussian field (diffGP, Hegde et al. 2019); `posterior`: see Wishart."""

    posterior: str = "rotated"

    def __post_init__(self) -> None:
        _check_posterior(self.posterior)


@dataclasses.dataclass(frozen=True)
class Diagonal(DiffusionSpec):
    """Σ = Λ, constant and diagonal."""

    white: float = 0.01


@dataclasses.dataclass(frozen=True)
class Wishart(DiffusionSpec):
    """Σ(x) = L J(x) J(x)ᵀ Lᵀ (+ Λ), J a ρ×ν matrix of Gaussian processes (diffWGP).

    `rank` ρ acts as D where it is larger or None; `dof` ν is ρ where None (a preset may say another one for the name
    "wishart"); `columns` says whether the ν columns of J have posteriors of their own ("independent") or share one
    ("shared"); `white` is the starting value of Λ, None for no Λ. `posterior` is the form of the covariances of q:
    "full"; "rotated", in which they have their eigenvectors in common and a step costs a fraction; "structured", in
    which they have one unit lower triangular factor in common; or "diagonal" (mean field). Names of diffusions have the
    form of their estimator: that of the preset for flows, "structured" for series.
    """

    rank: int | None = 5
    dof: int | None = None
    columns: str = "shared"
    white: float | None = None
    unit_rows: bool = True
    posterior: str = "rotated"

    def __post_init__(self) -> None:
        _check_posterior(self.posterior)
        if self.columns not in ("shared", "independent"):
            raise unknown_option("columns", self.columns, ("shared", "independent"))
        for name in ("rank", "dof"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or int(value) != value or value < 1):
                raise OptionError(
                    f"{name}={value!r} given to the Wishart diffusion; expected a whole number of at least 1, or None."
                )


# --- likelihoods -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LikelihoodSpec(Spec):
    """p(y | g): how an observation depends on the output of the model."""


@dataclasses.dataclass(frozen=True)
class Gaussian(LikelihoodSpec):
    """y = g + ε, ε ~ N(0, σ²), one σ² for each output, in standardised units."""

    variance: float | None = None


@dataclasses.dataclass(frozen=True)
class StudentT(LikelihoodSpec):
    """y = g + s ε, ε Student-t with `dof` degrees of freedom (learnt, above 2)."""

    scale: float = 0.3
    dof: float = 4.0


@dataclasses.dataclass(frozen=True)
class Bernoulli(LikelihoodSpec):
    """P(y = 1) = 1 / (1 + exp(−g))."""


@dataclasses.dataclass(frozen=True)
class Categorical(LikelihoodSpec):
    """P(y = c) = softmax(g)_c, one output of g for each class."""

    n_classes: int = 2


@dataclasses.dataclass(frozen=True)
class Poisson(LikelihoodSpec):
    """y ~ Poisson(exp(log_rate + g)).

    `log_rate` is a number, or one for each target. None stands for 0 in a model; estimators put the log of the mean
    count of each target in its place, so that g, whose prior has mean zero, starts where the data are.
    """

    log_rate: float | tuple[float, ...] | None = None


# --- names and JSON --------------------------------------------------------------------------

KERNELS: dict[str, KernelSpec] = {
    "rbf": RBF(),
    "matern12": Matern12(),
    "matern32": Matern32(),
    "matern52": Matern52(),
    "linear": Linear(),
    "periodic": Periodic(),
}
LIKELIHOODS: dict[str, LikelihoodSpec] = {
    "gaussian": Gaussian(),
    "student_t": StudentT(),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
}
DIFFUSIONS: dict[str, DiffusionSpec] = {
    "none": NoDiffusion(),
    "gp": GPDiffusion(),
    "diagonal": Diagonal(),
    "wishart": Wishart(),
}


def resolve(option: str, value: Any, names: dict[str, Any], base: type[Spec]) -> Any:
    """The spec meant by a name or a spec; an error that lists the names otherwise."""
    if isinstance(value, base):
        return value
    if isinstance(value, str) and value in names:
        return names[value]
    if isinstance(value, str):
        raise unknown_option(option, value, list(names))
    raise OptionError(
        f"{option}={value!r} is a {type(value).__name__}; expected one of {list(names)} or a {base.__name__}."
    )


def from_json(data: Any) -> Any:
    """The spec a dictionary made by `Spec.to_json` describes. Only classes of this module are made."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if not isinstance(data, dict) or "kind" not in data:
        return data
    kinds = {cls.__name__: cls for cls in _all_subclasses(Spec)}
    if data["kind"] not in kinds:
        raise unknown_option("kind", data["kind"], sorted(kinds))
    return kinds[data["kind"]](**{name: from_json(value) for name, value in data.items() if name != "kind"})


def _all_subclasses(cls: type) -> list[type]:
    found: list[type] = []
    direct: type
    for direct in cls.__subclasses__():
        found += [direct, *_all_subclasses(direct)]
    return found


# --- models ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class SparseGPSpec(Spec):
    """A sparse GP with a likelihood (SGP)."""

    kernel: KernelSpec = RBF()
    likelihood: LikelihoodSpec = Gaussian()


@dataclasses.dataclass(frozen=True)
class FlowSpec(Spec):
    """Inputs flow through an SDE over [0, flow_time] in n_steps Euler steps; a sparse GP predicts from where they end.

    `kernel` is the one of the output GP and, with starting values of its own, of the field.
    """

    kernel: KernelSpec = RBF()
    likelihood: LikelihoodSpec = Gaussian()
    diffusion: DiffusionSpec = Wishart()
    flow_time: float = 1.0
    n_steps: int = 20
    sampling: str = "marginal"
    time_dependent: bool = False

    def __post_init__(self) -> None:
        if self.sampling not in ("marginal", "pathwise"):
            raise unknown_option("sampling", self.sampling, ("marginal", "pathwise"))
        if isinstance(self.n_steps, bool) or int(self.n_steps) != self.n_steps or self.n_steps < 1:
            raise OptionError(
                f"n_steps={self.n_steps!r} given to a flow; expected a whole number of at least 1 "
                "(flow_time=0 leaves the inputs where they are)."
            )


DRIFTS = ("linear+gp", "gp", "linear", "none")


READOUTS = ("linear", "gp")


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


# As many as the rows after which a window has forgotten how it started (`series.BURN_IN`), and the next one.
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


@dataclasses.dataclass(frozen=True)
class DynamicsSpec(Spec):
    """A time series as an SDE: dx = μ(x, lags, u) dt + √(Σ(x, u) + Λ) dB (design, sections 1 and 4).

    The state x is what is observed, or `latent`. `lags` are the rows that the step to the next one looks back at: a
    number p for 1, …, p, or chosen ones that begin with 1. `drift` says which parts μ has; `white_noise` whether Λ is
    constant or depends on the state; `innovations` whether the noise of a step is "gaussian" or "student_t"; `step` is
    the longest Euler step in units of time (the median gap); gaps above `max_gap` steps cut the series.
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

    def __post_init__(self) -> None:
        if self.latent is not None and memory_of(self.lags) > 1:
            raise OptionError(f"lags={self.lags} with a latent state; it carries the memory itself: use lags=1.")
        if self.step != 1.0 and memory_of(self.lags) > 1:
            raise OptionError(
                f"step={self.step!r} with lags={self.lags}; lags above 1 count rows, and need a step from each row to "
                "the next: use step=1.0, or lags=1."
            )
        for name, known in (
            ("drift", DRIFTS),
            ("white_noise", ("constant", "state")),
            ("innovations", ("gaussian", "student_t")),
            ("objective", ("transition", "rollout")),
        ):
            if getattr(self, name) not in known:
                raise unknown_option(name, getattr(self, name), known)
        if self.innovations != "gaussian" and (self.latent is not None or self.objective == "rollout"):
            what = "a latent state, whose filter" if self.latent is not None else 'objective="rollout", which'
            other = "latent_dim=None" if self.latent is not None else 'objective="transition"'
            raise OptionError(
                f'innovations={self.innovations!r} with {what} is Gaussian; use innovations="gaussian", or {other}.'
            )


# --- training --------------------------------------------------------------------------------


FIXED_INDUCING = ("none", "field", "all")


@dataclasses.dataclass(frozen=True)
class TrainingSpec(Spec):
    """How a model is trained. All numbers are in standardised units.

    The flow is preceded by a warm start of the output GP alone: `warm_iter` iterations of L-BFGS on the collapsed bound
    where `collapsed` is set, the likelihood is Gaussian and N ≤ `collapsed_limit`; otherwise of stochastic steps at
    `warm_rate`. Where there is no flow that is the whole fit, with `sgp_iter` iterations from `sgp_lengthscale`.
    `natural_rate` is the step γ of natural gradients for q of the output (None: Adam for it too). `decay` is the part
    of the iterations over which the rate falls to zero by a cosine; `tolerance` (nats per row and 100 iterations) ends
    the constant part early once the bound no longer rises. `path_average` says what is averaged over `n_train_samples`
    paths (`objectives.negative_bound`). With `counts_paths` a batch is of `batch_size` paths, not rows. A flow's
    field has `field_inducing` inducing points (None: as many as the output, which is also the most); stochastic steps
    do not move those named by `fixed_inducing` ("none", "field", "all"). `dof` are the degrees of freedom ν of the
    diffusion "wishart" (None: its rank). `validation_fraction` of the rows are held back from the training of a flow:
    the state that predicts them best is kept, or the sparse GP alone where the flow predicts them no better (0: no rows
    are held back, and the flow is kept as it ends). `falls_back` is no longer used; it stands in files of version 0.1.
    `state_dim` are the dimensions of a flow's state (None: those of the inputs). `posterior` is the form of the
    covariances of q of the diffusions "wishart" and "gp" (`Wishart`). These eight are for regression and
    classification.
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
    flow_noise_share: float = 1.0
    path_average: str = "log"
    field_inducing: int | None = None
    fixed_inducing: str = "none"
    dof: int | None = None
    falls_back: bool = False
    counts_paths: bool = False
    state_dim: int | None = None
    posterior: str = "structured"
    validation_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.fixed_inducing not in FIXED_INDUCING:
            raise unknown_option("fixed_inducing", self.fixed_inducing, FIXED_INDUCING)
        if self.path_average not in ("log", "density"):
            raise unknown_option("path_average", self.path_average, ("log", "density"))
        _check_posterior(self.posterior)

    def batch_rows(self, n_samples: int) -> int:
        """How many rows a batch has where each has `n_samples` paths."""
        return max(1, self.batch_size // n_samples) if self.counts_paths else self.batch_size

    def without_flow(self) -> TrainingSpec:
        """For a sparse GP alone: the phase of the output is the whole fit."""
        return dataclasses.replace(
            self, warm_iter=self.sgp_iter, output_lengthscale=self.sgp_lengthscale, state_dim=None
        )
