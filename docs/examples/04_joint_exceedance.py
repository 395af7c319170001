# %% [markdown]
# # Will both stations exceed the limit?
#
# After this example you can compute the probability that two series exceed a limit in the same hour, and see why
# intervals of each series alone cannot give this probability.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import wishflow as wf

# %% [markdown]
# ## Two stations
#
# The data are simulated, so the truth is known. The logarithms of two concentrations revert to their mean. Their noise
# has a correlation of 0.9, as for two stations in one city.

# %%
LIMIT = 1.5
ROOT = 0.25 * np.linalg.cholesky(np.array([[1.0, 0.9], [0.9, 1.0]]))


def simulated(start, n_steps, n_paths, rng):
    """Levels of both stations on paths from one start, (paths, steps, 2)."""
    log_level, steps = np.tile(np.log(start), (n_paths, 1)), []
    for _ in range(n_steps):
        log_level = 0.9 * log_level + rng.normal(size=(n_paths, 2)) @ ROOT.T
        steps.append(np.exp(log_level))
    return np.stack(steps, axis=1)


rng = np.random.default_rng(0)
hours = pd.date_range("2024-01-01", periods=1500, freq="h")
y = pd.DataFrame(simulated([1.0, 1.0], 1500, 1, rng)[0], index=hours, columns=["north", "south"])

# %% [markdown]
# ## Fit and ask
#
# A forecast is a set of joint draws. The probability of an event is its share among the draws.

# %%
model = wf.WishartForecaster(
    transform="log", lags=1, calendar=False, rank=2, n_inducing=15, max_iter=60, random_state=0
).fit(y)
samples = model.forecast("24h", n_draws=2000).samples  # draw, time, variable
above = samples > LIMIT
joint = above.all("variable").mean("draw").values
product = above.mean("draw").prod("variable").values

true_paths = simulated(y.iloc[-1].to_numpy(), 24, 20_000, rng)
truth = (true_paths > LIMIT).all(axis=2).mean(axis=0)

# %%
fig, ax = plt.subplots(figsize=(7.5, 3.4))
step = np.arange(1, 25)
ax.plot(step, truth, color="black", ls="--", label="truth")
ax.plot(step, joint, color="#D55E00", marker="o", ms=4, label="joint draws")
ax.plot(step, product, color="#0072B2", marker="s", ms=4, label="product of the two probabilities")
ax.set(xlabel="hours ahead", ylabel=f"P(both above {LIMIT})", ylim=(0.0, None))
ax.legend(frameon=False)
plt.show()  # The product of the two probabilities assumes that the stations are independent, and is far too small.

# %% [markdown]
# You can also ask about the whole day: at least one hour with both above the limit, or a daily mean above it.

# %%
some_hour = float(above.all("variable").any("time").mean("draw"))
true_some_hour = (true_paths > LIMIT).all(axis=2).any(axis=1).mean()
print(f"P(both above {LIMIT} in some hour of the day) = {some_hour:.2f}, truth {true_some_hour:.2f}")

# %% [markdown]
# Next: [scenarios](../howto/scenarios.md) computes such probabilities given that one station is known.
