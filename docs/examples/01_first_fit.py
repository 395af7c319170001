# %% [markdown]
# # A first fit
#
# After this example you can fit a regressor, draw its predictive intervals, and check them with rows that it has not
# seen. It needs nothing but the package.

# %%
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow.plotting import plot_band, plot_points

# %% [markdown]
# ## The data
#
# One input, one target. There is a hole in the inputs between 0 and 1.2: a good model is less sure there.

# %%
rng = np.random.default_rng(0)
x = rng.uniform(-2.0, 2.0, 360)
x = x[(x < 0.0) | (x > 1.2)]
y = np.sin(3.0 * x) + 0.5 * x + 0.2 * rng.normal(size=len(x))
X_train, y_train = x[:150, None], y[:150]
X_test, y_test = x[150:, None], y[150:]

# %% [markdown]
# ## Fit and predict
#
# Inputs and targets are scaled inside. Every prediction is a number of one predictive distribution, in the units of
# `y`: here its mean and the interval that should hold nine of ten new values.

# %%
model = wf.SparseGPRegressor(n_inducing=30, random_state=0).fit(X_train, y_train)
print(model.status_)

grid = np.linspace(-2.2, 2.2, 200)
mean = model.predict(grid[:, None])
low, high = model.predict_interval(grid[:, None], coverage=0.9).T

# %%
fig, ax = plt.subplots(figsize=(7.0, 3.4))
plot_band(grid, low, high, mean, label="mean and 90 % interval", ax=ax)
plot_points(X_train[:, 0], y_train, label="training rows", ax=ax)
ax.set(xlabel="x", ylabel="y")
ax.legend(loc="upper left", frameon=False)
plt.show()  # The interval is wider in the hole between 0 and 1.2, where there are no rows.

# %% [markdown]
# ## Check
#
# Count the test rows inside their intervals, and compare models by the log density of these rows: higher is better.
# `diagnose` does more of this at once.

# %%
low, high = model.predict_interval(X_test, coverage=0.9).T
inside = np.mean((low <= y_test) & (y_test <= high))
print(f"{inside:.0%} of {len(y_test)} test rows are inside their 90 % intervals")
print(f"log density of a test row: {model.log_prob(X_test, y_test).mean():.2f}")

# %% [markdown]
# Next: [your first regression](../tutorials/first_regression.md) goes through all of this slowly, and
# [uncertainty you can check](../uncertainty.md) says what to do where too few rows are inside.
