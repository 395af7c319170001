"""Draws in the formats of other tools."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float


def draws_as_dataset(samples: Float[np.ndarray, "S T D"], index: pd.Index, columns: pd.Index) -> xr.Dataset:
    """Draws as a dataset of types that NetCDF knows.

    Stamps with a time zone are given in UTC, and the zone is an attribute; periods are given by their starts.
    """
    attributes = {}
    if isinstance(index, pd.PeriodIndex):
        attributes["period"], index = index.freqstr, index.to_timestamp()
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        attributes["time_zone"], index = str(index.tz), index.tz_convert("UTC").tz_localize(None)
    names = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in columns]
    coordinates = {"draw": np.arange(len(samples)), "time": index.rename("time"), "variable": names}
    array = xr.DataArray(samples, coordinates, dims=("draw", "time", "variable"))
    return xr.Dataset({"forecast": array}, attrs=attributes)


def as_inference_data(draws: xr.Dataset) -> Any:
    """A dataset of draws as one chain of ArviZ's group `posterior_predictive`."""
    import arviz

    chain = draws.expand_dims(chain=[0])
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(posterior_predictive=chain)
    return xr.DataTree.from_dict({"posterior_predictive": chain})
