"""A weak prior on the lengthscales and the noise of a GP, so that a few rows do not overfit them.

The marginal likelihood of a few dozen rows is flat in some lengthscales and steep in others. Its maximum often has a
short lengthscale for an input of no relevance, and far too little noise.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Scalar

from ..kernels import AbstractKernel, AbstractStationaryKernel
from ..likelihoods import AbstractLikelihood, GaussianLikelihood

# Mean and standard deviation of log ℓ − ½ log D in standardised inputs: at e √D a function is nearly linear over
# the data. Distances grow with √D (Hvarfner et al. 2024). Chosen on real tables of 24 to 200 rows (docs/decisions.md).
LOG_LENGTHSCALE = 1.0
SPREAD = 0.5
# The prior of σ² weighs as much as twice so many rows that are noise alone.
NOISE_SHAPE = 3.0


def hyperprior_penalty(kernel: AbstractKernel, likelihood: AbstractLikelihood) -> Scalar:
    """−log p(ℓ, σ²), 0 at its mode and positive elsewhere:

    ½ Σ_d ((log ℓ_d − ½ log D − 1) / 0.5)² + 3 Σ_p (σ²_p − 1 − log σ²_p).

    ℓ are the lengthscales of the stationary parts of the kernel (RBF and Matérn), D the number of inputs of each part.
    Other parts, such as "periodic" and "linear", have no penalty, and only Gaussian noise has one. It does not grow
    with N.
    """
    parts = jax.tree.leaves(kernel, is_leaf=is_stationary)
    total = sum((_of_lengthscales(part) for part in parts if is_stationary(part)), start=jnp.zeros(()))
    if not isinstance(likelihood, GaussianLikelihood):
        return total
    noise = likelihood.variance
    return total + NOISE_SHAPE * jnp.sum(noise - 1.0 - jnp.log(noise))


def is_stationary(part: object) -> bool:
    """Whether a part of a kernel has lengthscales of its own."""
    return isinstance(part, AbstractStationaryKernel)


def _of_lengthscales(kernel: AbstractStationaryKernel) -> Scalar:
    n_active = kernel.n_inputs if kernel.active_dims is None else len(kernel.active_dims)
    centre = LOG_LENGTHSCALE + 0.5 * np.log(n_active)
    return 0.5 * jnp.sum(((jnp.log(kernel.lengthscale.value) - centre) / SPREAD) ** 2)
