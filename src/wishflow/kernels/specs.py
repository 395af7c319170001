"""Kernel specs, and their names."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from ..specs import Spec


@dataclasses.dataclass(frozen=True)
class KernelSpec(Spec):
    """A covariance function. `a + b` and `a * b` make sums and products."""

    is_part: ClassVar[bool] = True

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


KERNELS: dict[str, KernelSpec] = {
    "rbf": RBF(),
    "matern12": Matern12(),
    "matern32": Matern32(),
    "matern52": Matern52(),
    "linear": Linear(),
    "periodic": Periodic(),
}
