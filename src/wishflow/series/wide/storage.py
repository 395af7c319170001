"""Model files of `WideForecaster`: the file of the factors' forecaster, with loadings and own dynamics beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...files.arrays import part_of
from ...files.json import plain
from ...files.model_file import write_model
from ...files.trust import LARGEST_SCALE, check_finite, check_seed, require
from ..forecaster import WishartForecaster
from ..specs import chosen_lags
from ..storage import (
    described,
    index_numbers,
    index_of,
    index_to_json,
    options_of,
    parameter_to_json,
)
from ..storage import rebuilt as rebuilt_forecaster
from .factors import Loadings, factor_names
from .own import OwnDynamics, is_stable

FACTORS = "factors."
LOADINGS = ("mean", "scale", "V", "variance")
PARTS = ("loadings.", "own.")
# Weights are of order one, in scaled units.
LARGEST_WEIGHT = 1e3


def save_wide(forecaster: Any, path: str | Path) -> None:
    """Write a fitted forecaster to one file, atomically."""
    header, arrays = described(forecaster.factors_)
    options, inner, tail = forecaster.get_params(deep=False), forecaster.forecaster, forecaster.tail_
    own, loadings = forecaster.own_, forecaster.loadings_
    write_model(
        path,
        {
            "class": type(forecaster).__name__,
            "parameters": {n: parameter_to_json(n, value) for n, value in options.items() if n != "forecaster"},
            "forecaster": None if inner is None else _options_of(inner),
            "factors": header,
            "columns": [plain(name) for name in forecaster.columns_],
            "index": index_to_json(tail.index),
            "index_name": tail.index.name if isinstance(tail.index.name, str) else None,
            "own_lags": list(own.lags),
            "own_periods": list(forecaster.own_periods_),
            "explained": forecaster.explained_,
            "seed": forecaster.seed_,
        },
        {
            **{FACTORS + name: value for name, value in arrays.items()},
            **{f"loadings.{name}": getattr(loadings, name) for name in LOADINGS},
            **{f"own.{name}": getattr(own, name) for name in ("weights", "variance")},
            "tail.index": index_numbers(tail.index),
            "tail.values": tail.to_numpy(),
        },
    )


def _options_of(inner: WishartForecaster) -> dict[str, Any]:
    return {name: parameter_to_json(name, value) for name, value in inner.get_params(deep=False).items()}


def rebuilt(cls: type, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The forecaster a file describes."""
    inner = header["forecaster"]
    options = options_of(header["parameters"])
    if inner is not None:
        inner = WishartForecaster(**options_of(inner))
    factors = rebuilt_forecaster(WishartForecaster, header["factors"], part_of(arrays, FACTORS))
    _check_file(header, arrays, factors)
    forecaster = cls(forecaster=inner, **options)
    forecaster.factors_, forecaster.columns_ = factors, pd.Index(header["columns"])
    forecaster.loadings_ = Loadings(*(arrays[f"loadings.{name}"] for name in LOADINGS))
    lags = chosen_lags(tuple(header["own_lags"]))
    forecaster.own_ = OwnDynamics(lags, arrays["own.weights"], arrays["own.variance"])
    forecaster.own_periods_ = tuple(header["own_periods"])
    index = index_of(header["index"], arrays["tail.index"]).rename(header["index_name"])
    forecaster.tail_ = pd.DataFrame(arrays["tail.values"], index, forecaster.columns_)
    forecaster.n_factors_, forecaster.explained_ = forecaster.loadings_.n_factors, float(header["explained"])
    forecaster.seed_, forecaster.fh_ = header["seed"], None
    forecaster.is_series_, forecaster.is_panel_, forecaster.name_ = False, False, None
    # Harmonics of the last rows, once: unknown periods, or other weights than they have columns, end here.
    n_inputs = forecaster._inputs(index[-1:]).shape[1]
    require(
        len(forecaster.own_.weights) == len(lags) + n_inputs, f"own.weights has {len(forecaster.own_.weights)} rows"
    )
    return forecaster


def _check_file(header: dict[str, Any], arrays: dict[str, np.ndarray], factors: WishartForecaster) -> None:
    """Lengths and numbers of a file against each other, before anything is built from them."""
    columns = header["columns"]
    is_names = isinstance(columns, list) and all(isinstance(one, str | int | float) for one in columns)
    require(is_names and len(set(columns)) == len(columns) > 2, f"the names of the columns are {str(columns)[:100]}")
    D, R = len(columns), len(factors.columns_)
    shapes = {"loadings.mean": (D,), "loadings.scale": (D,), "loadings.V": (D, R), "own.variance": (D,)}
    shapes |= {"loadings.variance": (R,), "tail.values": (len(arrays["tail.index"]), D)}
    for name, shape in shapes.items():
        require(arrays[name].shape == shape, f"{name} has the shape {arrays[name].shape}, expected {shape}")
        require(arrays[name].dtype.kind == "f", f"{name} holds {arrays[name].dtype}, expected real numbers")
    check_finite(arrays, PARTS, LARGEST_SCALE)
    for name in ("loadings.scale", "loadings.variance", "own.variance"):
        require((arrays[name] > 0).all(), f"{name} has numbers that are not positive")
    V = arrays["loadings.V"]
    require(R < D and np.allclose(V.T @ V, np.eye(R), atol=1e-6), "the loadings are not orthonormal")
    index = arrays["tail.index"]
    require(index.ndim == 1 and len(index) > 0 and (np.diff(index) > 0).all(), "the last rows are not in order")
    require(not np.isinf(arrays["tail.values"]).any(), "the last rows are infinite")
    _check_own(header["own_lags"], arrays["own.weights"], D, len(index))
    _check_factors(header)
    require(set(header["own_periods"]) <= {"day", "week", "year"}, "the periods are not of day, week and year")
    require(isinstance(header["explained"], float), f"explained is {header['explained']!r}")
    check_seed(header["seed"])


def _check_own(lags: Any, weights: np.ndarray, n_columns: int, n_rows: int) -> None:
    """Lags in order, within the last rows; weights of paths that do not explode."""
    is_lags = isinstance(lags, list) and all(isinstance(lag, int) and not isinstance(lag, bool) for lag in lags)
    is_lags = is_lags and lags[:1] == [1] and sorted(set(lags)) == lags and lags[-1] < n_rows
    require(is_lags, f"the lags are {str(lags)[:100]}, and there are {n_rows} last rows")
    is_table = weights.ndim == 2 and weights.shape[1] == n_columns and len(weights) > len(lags)
    require(is_table and weights.dtype.kind == "f", f"own.weights has the shape {weights.shape}")
    require(np.abs(weights).max() <= LARGEST_WEIGHT, "own.weights holds numbers that are far too large")
    require(is_stable(weights[: len(lags)], tuple(lags)).all(), "own.weights has paths that explode")


def _check_factors(header: dict[str, Any]) -> None:
    """The forecaster of the factors is one of a single frame, with the names and stamps that it has in a fit."""
    factors, R = header["factors"], len(header["factors"]["columns"])
    is_plain = factors["flags"]["is_panel"] is False and factors["flags"]["is_series"] is False
    require(is_plain and factors["x_columns"] is None, "the factors are a panel, or have covariates")
    require(factors["columns"] == factor_names(R), f"the factors are named {str(factors['columns'])[:100]}")
    one, other = header["index"], factors["indices"][0]
    is_same = all(one.get(name) == other.get(name) for name in ("kind", "zone", "freq"))
    require(is_same, f"the stamps are of two kinds: {one} and {other}")
