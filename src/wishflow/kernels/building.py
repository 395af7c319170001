"""From a kernel spec to a kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..errors import OptionError
from ..numerics.parameters import Positive
from ..specs import builder_of, checked_part, register
from .base import AbstractKernel
from .combine import ProductKernel, SumKernel
from .linear import LinearKernel
from .periodic import PeriodicKernel
from .specs import RBF, KernelSpec, Linear, Matern12, Matern32, Matern52, Periodic, Product, StationaryKernelSpec, Sum
from .stationary import Matern12Kernel, Matern32Kernel, Matern52Kernel, RBFKernel


def build(spec: KernelSpec, n_inputs: int, *, variance: float = 1.0, lengthscale: float = 1.0) -> AbstractKernel:
    """Make the kernel that a spec describes.

    The parts of a sum share the variance evenly. In a product the first factor has it and the others have 1, so k(x, x)
    of stationary kernels stays `variance`.

    Parameters
    ----------
    spec : KernelSpec
        The spec.
    n_inputs : int
        Number of columns of the inputs.
    variance : float, default=1.0
        Starting variance where the spec says None.
    lengthscale : float, default=1.0
        Starting lengthscale where the spec says None.

    Returns
    -------
    AbstractKernel
        The kernel.

    Raises
    ------
    OptionError
        If `spec` is no kernel spec, is not registered, or has values outside their range.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from wishflow import kernels
    >>> kernel = kernels.build(kernels.RBF(), n_inputs=2, variance=3.0)
    >>> kernel.matrix(jnp.zeros((4, 2)), jnp.ones((5, 2))).shape
    (4, 5)
    """
    if not isinstance(spec, KernelSpec):
        raise OptionError(
            f"kernel={spec!r} is a {type(spec).__name__}; expected a kernel spec "
            "such as wishflow.kernels.RBF(), or a sum or product of them."
        )
    found = builder_of(spec)(spec, n_inputs, variance=variance, lengthscale=lengthscale)
    return checked_part(spec, found, AbstractKernel)


def stationary_builder(kernel: Callable[..., AbstractKernel]) -> Callable[..., AbstractKernel]:
    """Make the builder of a stationary kernel class, for `wishflow.register`.

    Parameters
    ----------
    kernel : callable
        The class, which takes variance, lengthscale, n_inputs and active_dims.

    Returns
    -------
    callable
        A builder `(spec, n_inputs, *, variance, lengthscale)` for subclasses of `StationaryKernelSpec`.

    Examples
    --------
    >>> from wishflow import kernels
    >>> builder = kernels.stationary_builder(kernels.RBFKernel)
    >>> builder(kernels.RBF(), 2, variance=1.0, lengthscale=1.0).n_inputs
    2
    """

    def build_stationary(
        spec: StationaryKernelSpec, n_inputs: int, *, variance: float, lengthscale: float
    ) -> AbstractKernel:
        return kernel(*_stationary_parameters(spec, n_inputs, variance, lengthscale))

    return build_stationary


def _stationary_parameters(
    spec: StationaryKernelSpec, n_inputs: int, variance: float, lengthscale: float
) -> tuple[Positive, Positive, int, tuple[int, ...] | None]:
    active_dims = _checked_dims(spec.active_dims, n_inputs)
    shape = (_n_active(active_dims, n_inputs),) if spec.ard else ()
    variances = _positive("variance", spec.variance, variance, ())
    return variances, _positive("lengthscale", spec.lengthscale, lengthscale, shape), n_inputs, active_dims


def _build_periodic(spec: Periodic, n_inputs: int, *, variance: float, lengthscale: float) -> PeriodicKernel:
    variances, lengthscales, n_inputs, active_dims = _stationary_parameters(spec, n_inputs, variance, lengthscale)
    period = _positive("period", spec.period, 1.0, lengthscales.raw.shape)
    return PeriodicKernel(variances, lengthscales, period, n_inputs, active_dims)


def _build_linear(spec: Linear, n_inputs: int, *, variance: float, lengthscale: float) -> LinearKernel:
    del lengthscale
    active_dims = _checked_dims(spec.active_dims, n_inputs)
    shape = (_n_active(active_dims, n_inputs),) if spec.ard else ()
    return LinearKernel(_positive("variance", spec.variance, variance, shape), n_inputs, active_dims)


def _build_sum(spec: Sum, n_inputs: int, *, variance: float, lengthscale: float) -> SumKernel:
    share = variance / max(len(spec.parts), 1)
    return SumKernel(tuple(build(p, n_inputs, variance=share, lengthscale=lengthscale) for p in _parts(spec)))


def _build_product(spec: Product, n_inputs: int, *, variance: float, lengthscale: float) -> ProductKernel:
    variances = [variance] + [1.0] * (len(spec.parts) - 1)
    pairs = zip(_parts(spec), variances, strict=True)
    return ProductKernel(tuple(build(p, n_inputs, variance=v, lengthscale=lengthscale) for p, v in pairs))


def _parts(spec: Sum | Product) -> tuple[KernelSpec, ...]:
    if not spec.parts:
        raise OptionError(
            f"{type(spec).__name__}() has no parts; write a sum as RBF() + Linear() and a product as RBF() * Linear()."
        )
    return spec.parts


def _positive(name: str, value: float | None, default: float, shape: tuple[int, ...]) -> Positive:
    """The parameter that starts at `value`, or at `default` where it is None."""
    start = default if value is None else value
    if not (np.isfinite(start) and start > 0.0):
        raise OptionError(f"{name}={start!r} given to a kernel; expected a positive finite number.")
    return Positive.of(np.full(shape, start))


def _n_active(active_dims: tuple[int, ...] | None, n_inputs: int) -> int:
    return n_inputs if active_dims is None else len(active_dims)


def _checked_dims(active_dims: tuple[int, ...] | None, n_inputs: int) -> tuple[int, ...] | None:
    """The active inputs as plain integers; an error where they are none, repeated or outside 0 … n_inputs − 1."""
    if n_inputs < 1:
        raise OptionError(f"n_inputs={n_inputs} given; a kernel needs at least one input.")
    if active_dims is None:
        return None
    dims = tuple(int(d) for d in active_dims if int(d) == d and 0 <= d < n_inputs)
    if not dims or len(dims) != len(tuple(active_dims)) or len(set(dims)) != len(dims):
        raise OptionError(
            f"active_dims={tuple(active_dims)!r} given for {n_inputs} inputs; "
            f"expected distinct whole numbers from 0 to {n_inputs - 1}, at least one."
        )
    return dims


register(RBF, stationary_builder(RBFKernel))
register(Matern12, stationary_builder(Matern12Kernel))
register(Matern32, stationary_builder(Matern32Kernel))
register(Matern52, stationary_builder(Matern52Kernel))
register(Periodic, _build_periodic)
register(Linear, _build_linear)
register(Sum, _build_sum)
register(Product, _build_product)
