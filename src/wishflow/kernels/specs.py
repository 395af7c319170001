"""Kernel specs, and their names."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from ..specs import Spec


@dataclasses.dataclass(frozen=True)
class KernelSpec(Spec):
    """Base of the specs of covariance functions.

    `a + b` and `a * b` make sums and products. A subclass that is registered is an option of the estimators
    (docs/extend.md).

    See Also
    --------
    build : Make the kernel that a spec describes.
    wishflow.register : Add a spec of your own.

    Examples
    --------
    >>> from wishflow.kernels import RBF, Linear
    >>> len((RBF() + Linear()).parts)
    2
    """

    is_part: ClassVar[bool] = True

    def __add__(self, other: KernelSpec) -> Sum:
        return Sum(_flatten(Sum, self, other))

    def __mul__(self, other: KernelSpec) -> Product:
        return Product(_flatten(Product, self, other))


@dataclasses.dataclass(frozen=True)
class StationaryKernelSpec(KernelSpec):
    """Base of the specs of stationary kernels, k(x, y) = s² h(r²).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d², over the active inputs.

    Examples
    --------
    >>> from wishflow.kernels import RBF, StationaryKernelSpec
    >>> isinstance(RBF(lengthscale=2.0), StationaryKernelSpec)
    True
    """

    variance: float | None = None
    lengthscale: float | None = None
    ard: bool = True
    active_dims: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class RBF(StationaryKernelSpec):
    """Radial basis function kernel, k(x, y) = s² exp(−½ r²).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d². Functions with this kernel are smooth.

    Examples
    --------
    >>> from wishflow.kernels import RBF
    >>> RBF(lengthscale=2.0)
    RBF(variance=None, lengthscale=2.0, ard=True, active_dims=None)
    """


@dataclasses.dataclass(frozen=True)
class Matern12(StationaryKernelSpec):
    """Matérn kernel with ν = 1/2, k(x, y) = s² exp(−r).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d². Functions with this kernel are continuous but not differentiable.

    Examples
    --------
    >>> from wishflow.kernels import Matern12
    >>> Matern12(ard=False).ard
    False
    """


@dataclasses.dataclass(frozen=True)
class Matern32(StationaryKernelSpec):
    """Matérn kernel with ν = 3/2, k(x, y) = s² (1 + √3 r) exp(−√3 r).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d². Functions with this kernel are differentiable once.

    Examples
    --------
    >>> from wishflow.kernels import Matern32
    >>> Matern32(variance=0.5).variance
    0.5
    """


@dataclasses.dataclass(frozen=True)
class Matern52(StationaryKernelSpec):
    """Matérn kernel with ν = 5/2, k(x, y) = s² (1 + √5 r + 5r²/3) exp(−√5 r).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Notes
    -----
    r² = Σ_d (x_d − y_d)² / ℓ_d². Functions with this kernel are differentiable twice.

    Examples
    --------
    >>> from wishflow.kernels import Matern52
    >>> Matern52(active_dims=(0, 2)).active_dims
    (0, 2)
    """


@dataclasses.dataclass(frozen=True)
class Periodic(StationaryKernelSpec):
    """Periodic kernel, k(x, y) = s² exp(−2 Σ_d sin²(π (x_d − y_d) / p_d) / ℓ_d²).

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    lengthscale : float, optional
        Starting value of ℓ. None leaves it to the model that uses the kernel.
    ard : bool, default=True
        Whether each input has its own lengthscale and period.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.
    period : float, default=1.0
        Starting value of the period p, in the scaled units of the inputs.

    Examples
    --------
    >>> from wishflow.kernels import Periodic
    >>> Periodic(period=0.5).period
    0.5
    """

    period: float = 1.0


@dataclasses.dataclass(frozen=True)
class Linear(KernelSpec):
    """Linear kernel, k(x, y) = Σ_d s²_d x_d y_d.

    Parameters
    ----------
    variance : float, optional
        Starting value of s². None leaves it to the model that uses the kernel.
    ard : bool, default=False
        Whether each input has its own variance.
    active_dims : tuple of int, optional
        The inputs that the kernel sees. All by default.

    Examples
    --------
    >>> from wishflow.kernels import RBF, Linear
    >>> kernel = RBF() + Linear(ard=True)
    """

    variance: float | None = None
    ard: bool = False
    active_dims: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Sum(KernelSpec):
    """Sum of kernels, k = Σ_i k_i; `a + b` makes it.

    Parameters
    ----------
    parts : tuple of KernelSpec
        The terms, at least one.

    Examples
    --------
    >>> from wishflow.kernels import RBF, Linear, Sum
    >>> RBF() + Linear() == Sum((RBF(), Linear()))
    True
    """

    parts: tuple[KernelSpec, ...] = ()


@dataclasses.dataclass(frozen=True)
class Product(KernelSpec):
    """Product of kernels, k = Π_i k_i; `a * b` makes it.

    Parameters
    ----------
    parts : tuple of KernelSpec
        The factors, at least one.

    Examples
    --------
    >>> from wishflow.kernels import RBF, Periodic, Product
    >>> RBF() * Periodic() == Product((RBF(), Periodic()))
    True
    """

    parts: tuple[KernelSpec, ...] = ()


def names_dims(kernel: Any) -> bool:
    """Whether a kernel, or a part of it, is one of inputs that it names."""
    parts = kernel.parts if isinstance(kernel, Sum | Product) else ()
    return getattr(kernel, "active_dims", None) is not None or any(map(names_dims, parts))


def _flatten(kind: type, *terms: KernelSpec) -> tuple[KernelSpec, ...]:
    return tuple(part for term in terms for part in (term.parts if isinstance(term, kind) else (term,)))  # type: ignore[attr-defined]


KERNELS: dict[str, KernelSpec] = {
    "rbf": RBF(),
    "matern12": Matern12(),
    "matern32": Matern32(),
    "matern52": Matern52(),
    "linear": Linear(),
    "periodic": Periodic(),
}
