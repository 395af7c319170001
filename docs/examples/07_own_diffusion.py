# %% [markdown]
# # Your own diffusion
#
# After this example you can write your own noise model in forty lines, register it, and fit it with a forecaster or a
# flow.

# %%
import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow import diffusions

# %% [markdown]
# ## The noise
#
# The standard deviation of a step grows exponentially with the level of the series:
# $\sigma_d(x) = \exp(a_d + b_d x_d)$, with two trained numbers for each series. You write three classes: a *spec* (the
# options), a *module* with the parameters, and its prepared form, which returns the noise at rows of states.


# %%
@dataclasses.dataclass(frozen=True)
class LogLinear(diffusions.DiffusionSpec):
    """Noise with the standard deviation exp(a + b x); the starting value of exp(a)."""

    scale: float = 0.3


class PreparedLogLinear(diffusions.PreparedNoise):
    log_scale: jax.Array
    slope: jax.Array

    def at(self, inputs, a, unexplained):
        x = jnp.clip(inputs[:, : len(self.slope)], -4.0, 4.0)  # standardised; simulated paths may go far
        return diffusions.NoiseValues.of_diagonal(jnp.exp(2.0 * (self.log_scale + self.slope * x)))


class LogLinearNoise(diffusions.AbstractNoise):
    log_scale: jax.Array
    slope: jax.Array

    def kl(self):
        return {}  # no prior, no penalty

    def prepare(self, dtype, rotation):
        return PreparedLogLinear(self.log_scale.astype(dtype), self.slope.astype(dtype))


def build(spec, basis, dim, key, covariance):
    return LogLinearNoise(jnp.full(dim, np.log(spec.scale)), jnp.zeros(dim))


wf.register(LogLinear, build)

# %% [markdown]
# ## A series with such noise, and the fit

# %%
rng = np.random.default_rng(0)
y = np.zeros((800, 1))
for t in range(1, 800):
    y[t] = 0.8 * y[t - 1] + np.exp(-1.2 + 0.5 * y[t - 1]) * rng.normal(size=1)

few = {"lags": 1, "calendar": False, "transform": None, "n_inducing": 15, "random_state": 0}
own = wf.WishartForecaster(diffusion=LogLinear(), drift="linear", max_iter=150, **few).fit(y)
print(own.status_)

# %% [markdown]
# ## What has it learnt?

# %%
level = np.linspace(*np.quantile(y, [0.01, 0.99]), 60)
sd = np.sqrt(own.covariance(level[:, None]).values.ravel())
truth = np.exp(-1.2 + 0.5 * level)

fig, ax = plt.subplots(figsize=(7.0, 3.4))
ax.plot(y[:300], np.abs(y[1:301] - 0.8 * y[:300]), ".", color="#7F7F7F", ms=3, label="size of the noise in the data")
ax.plot(level, truth, color="black", ls="--", label="true standard deviation")
ax.plot(level, sd, color="#D55E00", lw=2.0, label="learnt standard deviation")
ax.set(xlabel="level", ylabel="noise of the next step", xlim=level[[0, -1]], ylim=(0.0, 1.2))
ax.legend(frameon=False, loc="upper left")
plt.show()  # The learnt noise grows with the level, as the true noise does. There are few rows at the ends.

# %% [markdown]
# Next: [your own kernel, likelihood or diffusion](../extend.md) covers all three parts, with their rules and tests.
