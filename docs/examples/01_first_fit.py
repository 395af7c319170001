# %% [markdown]
# # A first fit
#
# After this example you can fit a regressor, plot its predictive intervals, and check them on test rows. It needs
# nothing but the package.

# %%
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow.plotting import plot_band, plot_points

# %% [markdown]
# ## The data
#
# One input, one target. There are no inputs between 0 and 1.2: a good model is less certain there.

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
# The estimator scales inputs and targets itself. Every prediction comes from one predictive distribution, in the units
# of `y`. Here you compute its mean, and the interval that should contain nine of ten new values.

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
plt.show()  # The interval is wider between 0 and 1.2, where there are no rows.

# %% [markdown]
# ## Check
#
# Count the test rows inside their intervals. Compare models by the log density of these rows: higher is better.
# `diagnose` computes these and more scores in one call.

# %%
low, high = model.predict_interval(X_test, coverage=0.9).T
inside = np.mean((low <= y_test) & (y_test <= high))
print(f"{inside:.0%} of {len(y_test)} test rows are inside their 90 % intervals")
print(f"log density of a test row: {model.log_prob(X_test, y_test).mean():.2f}")

# %% [markdown]
# Next: [your first regression](../tutorials/first_regression.md) explains these steps in detail, and [uncertainty you
# can check](../uncertainty.md) says what to do if too few rows are inside.
