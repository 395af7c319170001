# %% [markdown]
# # Noise that depends on the input
#
# After this example you can fit a flow to data whose noise changes with the inputs, and compare its intervals with the
# known true distribution.

# %%
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow.plotting import colour_of, plot_band

# %% [markdown]
# ## Data with a known truth
#
# `make_heteroskedastic_2d` moves two inputs through a stochastic differential equation and observes the end of each
# path. The noise of the target grows with $x_2$, and the target can have two modes. The returned object can also draw
# from the true distribution at any input and compute its log density.

# %%
problem = wf.datasets.make_heteroskedastic_2d(600, random_state=0)
new = wf.datasets.make_heteroskedastic_2d(500, random_state=2)

# %% [markdown]
# ## Two models
#
# The sparse Gaussian process has the same noise at all inputs. (`calibrate=None` turns off recalibration, which could
# otherwise make the width depend on the inputs.) The flow learns where paths spread. `path_average="density"` lets the
# noise of the paths explain the noise of the target. Small batches and a high learning rate keep the fit short.

# %%
models = {
    "sparse GP": wf.SparseGPRegressor(n_inducing=20, calibrate=None, random_state=0),
    "flow": wf.FlowRegressor(
        n_inducing=20,
        path_average="density",
        n_train_samples=32,
        batch_size=32,
        learning_rate=0.03,
        max_iter=200,
        validation_fraction=0,  # no rows are held out to choose between the flow and a sparse GP
        calibrate=None,
        random_state=0,
    ),
}
log_density = {"truth": new.log_prob(new.X, new.y).mean()}
for name, model in models.items():
    log_density[name] = model.fit(problem.X, problem.y).log_prob(new.X, new.y).mean()
for name, value in log_density.items():
    print(f"{name:9} log density {value:6.3f}")

# %% [markdown]
# On average, no model can be better than the truth.
#
# ## Intervals along a line
#
# Fix $x_1 = 0$ and vary $x_2$. The plot compares the true 90 % interval, from 4000 draws, with the intervals of the
# models.

# %%
line = np.column_stack([np.zeros(41), np.linspace(-2.0, 2.0, 41)])
truth = np.quantile(problem.sample(line, n=4000, seed=3), [0.05, 0.95], axis=0)
gap = {}

fig, axes = plt.subplots(1, 2, figsize=(8.0, 3.4), sharey=True, layout="constrained")
for ax, (name, model), colour in zip(axes, models.items(), (colour_of("SGP"), colour_of("diffWGP")), strict=True):
    low, high = model.predict_interval(line, coverage=0.9).T
    gap[name] = np.abs(high - low - (truth[1] - truth[0])).mean()
    plot_band(line[:, 1], low, high, model.predict(line), colour=colour, label=name, ax=ax)
    plot_band(line[:, 1], *truth, colour="black", label="truth", is_outline=True, ax=ax)
    ax.set(xlabel="$x_2$", title=name)
    ax.legend(loc="lower left", frameon=False)
axes[0].set_ylabel("y at $x_1 = 0$")
plt.show()  # 90 % intervals. Those of the flow are narrow where the noise is small, and wide where it is large.

# %%
for name, value in gap.items():
    print(f"{name:9} mean error of the width {value:.2f}")

# %% [markdown]
# Next: [choose a model](../howto/choose_a_model.md), and [uncertainty you can check](../uncertainty.md) for data whose
# true distribution is unknown.
