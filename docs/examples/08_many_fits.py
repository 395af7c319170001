# %% [markdown]
# # Many fits at once
#
# After this example you can train many models with one call: together in one program on a GPU, one after another on a
# CPU.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone

import wishflow as wf
from wishflow.plotting import plot_points

print(f"device: {jax.default_backend()}")

# %% [markdown]
# ## Twelve bootstrap samples
#
# How much would the fit change with other data of the same kind? Resample the rows with replacement, and fit a model to
# each sample. On a GPU, estimators with the same options (except for the seed) are trained in one program if their data
# have the same columns and about the same number of rows.

# %%
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, (100, 1))
X = X[(X[:, 0] < 0.2) | (X[:, 0] > 1.2)]
y = np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=len(X))

N_FITS = 12  # take more on a GPU: there all of them are trained in one program
rows = rng.integers(len(X), size=(N_FITS, len(X)))
model = wf.SparseGPRegressor(n_inducing=15, calibrate=None, random_state=0)
fitted = wf.fit_many([clone(model) for _ in rows], [(X[chosen], y[chosen]) for chosen in rows])

# %% [markdown]
# ## The spread of the fits

# %%
grid = np.linspace(-2.0, 2.0, 150)[:, None]
means = np.stack([one.predict(grid) for one in fitted])
spread = means.std(axis=0)

fig, ax = plt.subplots(figsize=(7.0, 3.4))
ax.plot(grid[:, 0], means.T, color="#0072B2", alpha=0.4, lw=1.0)
ax.plot(grid[:, 0], means.mean(axis=0), color="#D55E00", lw=2.0, label="mean of the fits")
plot_points(X[:, 0], y, label="data", ax=ax)
ax.set(xlabel="x", ylabel="y")
ax.legend(frameon=False, loc="upper right")
plt.show()  # Twelve fits to bootstrap samples. They agree where there are rows, and differ in the gap.

# %%
hole = (grid[:, 0] > 0.4) & (grid[:, 0] < 1.0)
print(f"spread of the fits in the hole {spread[hole].mean():.2f}, elsewhere {spread[~hole].mean():.2f}")

# %% [markdown]
# The same call accepts flows: `wf.fit_many([wf.FlowRegressor(random_state=s) for s in range(20)], [(X, y)] * 20)`. See
# [performance](../performance.md#on-an-accelerator) for the speed-up on a GPU. To improve a prediction, rather than
# plot its spread, use `n_members=5` of an estimator: see [GPUs and many fits](../howto/many_fits.md) and [members and
# calibration](../howto/members_and_calibration.md).
