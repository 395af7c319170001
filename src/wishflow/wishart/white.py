"""White noise Λ: constant, or dependent on the state."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ..inducing import rotated
from ..numerics.parameters import Positive

# |log(Λ/λ)| stays below this: an unbounded exponent explodes in long simulations.
WHITE_BOUND = 3.0


class WhiteNoise(eqx.Module):
    """Λ_d = λ_d exp(3 tanh(h_d/3)), h = C (x, u) + a(x)ᵀ m_h with penalty ½‖m_h‖² + ½‖C‖²; Λ = λ where h is absent."""

    base: Positive
    linear: Float[Array, "D K"] | None = None
    mean: Float[Array, "D M"] | None = None

    def kl(self) -> dict[str, Scalar]:
        if self.linear is None or self.mean is None:
            return {}
        return {"kl_white": 0.5 * (jnp.sum(self.linear**2) + jnp.sum(self.mean**2))}

    def rotated(self, rotation: Float[Array, "M M"] | None) -> WhiteNoise:
        """The same for rows of Qᵀa(x)."""
        if self.mean is None or rotation is None:
            return self
        return WhiteNoise(self.base, self.linear, rotated(self.mean, rotation))

    def at(self, inputs: Float[Array, "N K"], a: Float[Array, "N M"]) -> Float[Array, "N D"]:
        base = self.base.value.astype(inputs.dtype)
        if self.linear is None or self.mean is None:
            return jnp.broadcast_to(base, (inputs.shape[0], len(base)))
        h = inputs @ self.linear.T.astype(inputs.dtype) + a @ self.mean.T.astype(a.dtype)
        return base * jnp.exp(WHITE_BOUND * jnp.tanh(h / WHITE_BOUND))
