"""The registry of specs: which classes a file may name, and which function builds the part that a spec asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import OptionError
from .base import Spec, check_types

S = TypeVar("S", bound=type[Spec])

# Names of the package's own specs: a user's spec may not take one before the package has imported its own.
RESERVED = {
    *("RBF", "Matern12", "Matern32", "Matern52", "Periodic", "Linear", "Sum", "Product"),
    *("Gaussian", "StudentT", "Bernoulli", "Categorical", "Poisson"),
    *("NoDiffusion", "GPDiffusion", "Diagonal", "ConstantDiffusion", "Wishart"),
    *("SparseGPSpec", "FlowSpec", "DynamicsSpec", "Latent", "TrainingSpec"),
}

_KINDS: dict[str, type[Spec]] = {}
_BUILDERS: dict[type[Spec], Callable[..., Any]] = {}


def known(spec: S) -> S:
    """Let files name a spec class that needs no builder; a class decorator."""
    other = _KINDS.get(spec.__name__)
    is_taken = other is not None and (other.__module__, other.__qualname__) != (spec.__module__, spec.__qualname__)
    if is_taken or (spec.__name__ in RESERVED and not spec.__module__.startswith("wishflow.")):
        raise OptionError(
            f"a spec named {spec.__name__!r} is already registered; choose another name: model files identify "
            "specs by the names of their classes."
        )
    _KINDS[spec.__name__] = spec
    return spec


def register(spec: type[Spec], builder: Callable[..., Any]) -> None:
    """Make a spec of your own an option of the estimators, and of the model files that they write.

    Parameters
    ----------
    spec : type
        A frozen dataclass of plain values, a subclass of `wishflow.kernels.KernelSpec`,
        `wishflow.likelihoods.LikelihoodSpec` or `wishflow.diffusions.DiffusionSpec`.
    builder : callable
        What makes the part once the shapes of the data are known:
        `(spec, n_inputs, *, variance, lengthscale)` a kernel, `(spec, n_outputs)` a likelihood, and
        `(spec, basis, dim, key, covariance)` the noise of a diffusion (docs/extend.md).

    Raises
    ------
    OptionError
        If `spec` is no such class, or another class of its name is registered.

    Examples
    --------
    A kernel that starts with a longer lengthscale than others:

    >>> import dataclasses
    >>> import wishflow as wf
    >>> @dataclasses.dataclass(frozen=True)
    ... class Wide(wf.kernels.KernelSpec):
    ...     factor: float = 10.0
    >>> def wide(spec, n_inputs, *, variance, lengthscale):
    ...     rbf = wf.kernels.RBF(lengthscale=spec.factor * lengthscale)
    ...     return wf.kernels.build(rbf, n_inputs, variance=variance)
    >>> wf.register(Wide, wide)
    >>> model = wf.FlowRegressor(kernel=Wide(factor=3.0))
    """
    is_part = isinstance(spec, type) and issubclass(spec, Spec) and spec.is_part
    # Of the class itself: a subclass that is no dataclass inherits the attribute, but has no fields of its own.
    parameters = vars(spec).get("__dataclass_params__") if is_part else None
    if parameters is None or not parameters.frozen:
        raise OptionError(
            f"{spec!r} given to register; expected a frozen dataclass that is a subclass of KernelSpec, LikelihoodSpec "
            "or DiffusionSpec."
        )
    if not callable(builder):
        raise OptionError(f"builder={builder!r} given to register for {spec.__name__}; expected a function.")
    known(spec)
    _BUILDERS[spec] = builder


def builder_of(spec: Spec) -> Callable[..., Any]:
    """The function that builds what a spec asks for."""
    found = _BUILDERS.get(type(spec))
    if found is None:
        raise OptionError(
            f"{type(spec).__name__} is not registered; call wishflow.register({type(spec).__name__}, builder) first "
            "(docs/extend.md)."
        )
    return found


def checked_part(spec: Spec, found: Any, expected: type) -> Any:
    """What a builder has returned, if it is of the kind that is needed."""
    if not isinstance(found, expected):
        raise OptionError(
            f"the builder of {type(spec).__name__} returned {found!r}; expected an instance of {expected.__name__} "
            "(docs/extend.md)."
        )
    return found


def from_json(data: Any) -> Any:
    """The spec that a dictionary made by `Spec.to_json` describes; only registered classes are made."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if not isinstance(data, dict) or "kind" not in data:
        return data
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise OptionError(
            f"kind={kind!r} is not registered; expected one of {sorted(_KINDS)}. For a spec of your own, import the "
            "module that calls wishflow.register before you load the file."
        )
    spec = _KINDS[kind].from_fields({name: from_json(value) for name, value in data.items() if name != "kind"})
    check_types(spec)
    return spec
