# %% [markdown]
# # A latent SDE behind noisy series
#
# After this example you can fit a forecaster with a hidden state to many noisy series that follow a few causes, and
# compare it with one that uses the series themselves as the state.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import wishflow as wf
from wishflow.plotting import plot_band

# %% [markdown]
# ## Six noisy series from a hidden state
#
# The hidden state consists of two numbers and rotates slowly around the origin. Each series is a mixture of these two
# numbers plus observation noise as large as the signal. A single row therefore says little about the state, and many
# rows say a lot.

# %%
rng = np.random.default_rng(0)
angle = 2.0 * np.pi / 40.0
turn = 0.99 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
state = np.zeros((420, 2))
state[0] = [2.0, 0.0]
for t in range(1, 420):
    state[t] = turn @ state[t - 1] + 0.15 * rng.normal(size=2)
signal = state @ rng.normal(size=(2, 6))
columns = [f"y{i}" for i in range(1, 7)]
y = pd.DataFrame(signal + rng.normal(size=signal.shape), columns=columns)
train, later = y.iloc[:380], y.iloc[380:]

# %% [markdown]
# ## Fit both
#
# `latent_dim=2` observes the series through a linear readout, y = C x + b + noise. The filter uses particles.

# %%
few = {"n_inducing": 15, "transform": None, "calendar": False, "random_state": 0}
latent = wf.WishartForecaster(latent_dim=2, rank=2, max_iter=200, **few).fit(train)
direct = wf.WishartForecaster(lags=1, rank=6, max_iter=40, **few).fit(train)

# %% [markdown]
# ## Forecast
#
# Forecast forty steps ahead, one full rotation of the state.

# %%
forecasts = {"latent state": latent.forecast(40, n_draws=500), "one lag": direct.forecast(40, n_draws=500)}
error = {name: float((found.mean - later).abs().mean().mean()) for name, found in forecasts.items()}
noise = float(np.abs(y.to_numpy() - signal)[380:].mean())
for name, value in {**error, "observation noise alone": noise}.items():
    print(f"mean absolute error, {name}: {value:.2f}")

# %%
fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
for ax, (name, found), colour in zip(axes, forecasts.items(), ("#D55E00", "#0072B2"), strict=True):
    low, high = found.interval(0.9)
    ax.plot(np.arange(340, 380), train["y1"].iloc[340:], ".", color="#7F7F7F", ms=4, label="observed")
    ax.plot(np.arange(340, 420), signal[340:, 0], color="black", ls="--", lw=1.2, label="hidden signal")
    plot_band(np.arange(380, 420), low["y1"], high["y1"], found.mean["y1"], colour=colour, label="forecast", ax=ax)
    ax.set(title=name, xlabel="row")
axes[0].set_ylabel("y1")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()  # One of six series. The latent model continues to rotate; one noisy row is a poor starting state.

# %% [markdown]
# Next: [time series](../time_series.md#the-model) says when to use a latent state, and
# [filters](../explanation/filters.md) explains the particle filter.
