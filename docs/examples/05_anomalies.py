# %% [markdown]
# # Watch a stream and find anomalies
#
# After this example you can pass new rows to a fitted forecaster, and flag unlikely rows by their joint log density.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import wishflow as wf

# %% [markdown]
# ## A stream with two kinds of faults
#
# Two sensors move together. In row 420, one of them jumps. In row 460, both stay in their usual range but move apart: a
# limit on a single sensor cannot detect that.

# %%
rng = np.random.default_rng(0)
root = 0.3 * np.linalg.cholesky(np.array([[1.0, 0.95], [0.95, 1.0]]))
level = np.zeros((500, 2))
for t in range(1, 500):
    level[t] = 0.9 * level[t - 1] + root @ rng.normal(size=2)
level[420, 0] += 1.2
level[460] += [0.3, -0.3]
index = pd.date_range("2024-01-01", periods=500, freq="h")
y = pd.DataFrame(level, index=index, columns=["a", "b"])

# %% [markdown]
# ## Fit, and choose a threshold
#
# The threshold comes from normal rows: the lowest log density among them, minus a margin.

# %%
model = wf.WishartForecaster(
    lags=1, calendar=False, transform=None, rank=2, n_inducing=15, max_iter=60, random_state=0
).fit(y.iloc[:360])
threshold = model.log_prob(y.iloc[:360]).min() - 2.0

# %% [markdown]
# ## Watch
#
# Rows arrive in batches of twenty. `log_prob` scores each row given all rows before it. The first row below the
# threshold is flagged and set to NaN, and the batch is scored again, so that a fault does not affect the scores of
# later rows. Then `update` conditions the model on the batch. No parameters are trained.

# %%
scores, flagged = [], {}
for start in range(360, 500, 20):
    part = y.iloc[start : start + 20].copy()
    while (score := model.log_prob(part)).min() < threshold:
        first = score.index[score < threshold][0]
        flagged[first] = score[first]
        part.loc[first] = np.nan
    scores.append(score)
    model.update(part)
scores = pd.concat(scores)
scores.update(pd.Series(flagged))
found = index.get_indexer(list(flagged))
print("flagged rows:", found.tolist())

# %%
fig, (top, bottom) = plt.subplots(2, 1, figsize=(8.0, 4.4), sharex=True, layout="constrained")
tail, rows = y.iloc[360:], np.arange(360, 500)
top.plot(rows, tail["a"], color="#0072B2", label="sensor a")
top.plot(rows, tail["b"], color="#E69F00", ls="--", label="sensor b")
top.set_ylabel("reading")
top.legend(ncols=2, loc="lower left", frameon=False)
bottom.plot(rows, scores.to_numpy(), color="black", lw=1.0)
bottom.axhline(threshold, color="#7F7F7F", ls=":", label="threshold")
bottom.plot(found, list(flagged.values()), "o", color="#D55E00", label="flagged")
bottom.set(xlabel="row", ylabel="log density")
bottom.legend(ncols=2, loc="lower left", frameon=False)
plt.show()  # The fault in row 460 is within the usual range of each sensor, but unusual for both together.

# %% [markdown]
# Next: `drift_` and `refit_due_` tell you when the distribution itself has changed ([when to fit
# again](../howto/save_update_serve.md#when-to-fit-again)).
