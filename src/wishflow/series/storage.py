"""Model files of forecasters: specs, options, the axis of time, scales and the last rows; loading runs no code."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from .. import specs
from ..errors import ModelFileError
from ..files.arrays import flatten_arrays, part_of, unflatten_arrays
from ..files.json import finite_or_none, plain
from ..files.model_file import NOT_STORED, write_model
from ..files.trust import (
    LARGEST,
    LARGEST_SCALE,
    USUAL_COUNT,
    check_counts,
    check_finite,
    check_limits,
    check_seed,
    check_size,
    check_ticks,
    check_weights,
    require,
    template_of,
)
from ..numerics.devices import computing
from ..numerics.scaling import Scaler
from ..training.journal import history_of_file
from ..wishart.specs import Wishart
from ..wishart.wishart import n_outputs
from .autoregressive import Start
from .data.calendar import FINE, PERIODS, SEASONAL, harmonics
from .data.frames import ONLY
from .data.times import TimeAxis
from .data.transforms import ColumnTransforms
from .data.units import Tail, Units
from .drift import DriftMonitor
from .latent import LatentStart
from .layout import Layout
from .members import Member
from .models import model_builder
from .recalibration import HorizonScales
from .specs import DynamicsSpec, chosen_lags

ATTRIBUTES = ("seed_", "n_iter_", "status_")
# Arrays that are numbers everywhere, and those that parts of models are made of.
FINITE = ("y_scaler.", "x_scaler.", "effect.", "calibration.", "drift.")
PARAMETERS = ("model.", "member.")


def save_forecaster(forecaster: Any, path: str | Path) -> None:
    """Write a fitted forecaster to one file, atomically."""
    write_model(path, *described(forecaster))


def described(forecaster: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of the file of a fitted forecaster."""
    if _is_object(forecaster.transform_):
        raise ModelFileError(
            f"transform={forecaster.transform!r} is an object, and loading a file runs no code; use a name such as "
            "'log1p', or transform the data before fit."
        )
    units = forecaster.units_
    header = {
        "class": type(forecaster).__name__,
        "parameters": {
            name: parameter_to_json(name, value) for name, value in forecaster.get_params(deep=False).items()
        },
        "spec": forecaster.spec_.to_json(),
        "training": forecaster.training_.to_json(),
        "axis": dataclasses.asdict(units.axis),
        "typical_values": list(units.transforms.scales),
        "columns": [plain(name) for name in forecaster.columns_],
        "x_columns": None if units.x_columns is None else [plain(name) for name in units.x_columns],
        "periods": list(units.periods),
        "has_freq": units.has_freq,
        "index_names": [name if isinstance(name, str) else None for name in units.index_names],
        **_rows_to_json(forecaster.tails_),
        "reservoir": None if forecaster.reservoir_ is None else _rows_to_json(_reservoir(forecaster)),
        "drift": None if forecaster.monitor_ is None else _drift_to_json(forecaster.monitor_),
        "effects": [plain(key) for key in units.effects],
        "added": [plain(key) for key in units.added],
        "flags": {"is_series": forecaster.is_series_, "is_panel": forecaster.is_panel_},
        "name": plain(forecaster.name_),
        "attributes": {name: plain(getattr(forecaster, name)) for name in ATTRIBUTES},
        "n_inducing": int(forecaster.model_.field.basis.Z.shape[0]),
        "history_columns": forecaster.history_.columns.tolist(),
        "history_phases": forecaster.history_["phase"].tolist(),
        "chosen": _chosen_to_json(forecaster),
        "members": _members_to_json(forecaster),
    }
    return header, _arrays(forecaster)


def _members_to_json(forecaster: Any) -> list[dict[str, Any]] | None:
    """The members of a mixture, the first of which is the model of the file; None where there is one model alone."""
    if not hasattr(forecaster, "members_"):
        return None
    return [
        {"spec": one.spec.to_json(), "weight": float(weight), "n_inducing": int(one.model.field.basis.Z.shape[0])}
        for one, weight in zip(forecaster.members_, forecaster.weights_, strict=True)
    ]


def _with_members(forecaster: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Files of older versions have none."""
    found = header.get("members")
    if found is None:
        return
    members = [Member(forecaster.spec_, forecaster.model_)]
    for k, one in enumerate(found[1:], start=1):
        spec = specs.from_json(one["spec"])
        _check_steps(spec)
        members.append(Member(spec, _model(forecaster, spec, one["n_inducing"], part_of(arrays, f"member.{k}."))))
    forecaster.members_, forecaster.weights_ = tuple(members), np.array([one["weight"] for one in found])


def _chosen_to_json(forecaster: Any) -> dict[str, Any]:
    """What `fit` chose, why, and by which scores."""
    table = forecaster.validation_history_
    return {
        "transform": parameter_to_json("transform", forecaster.transform_),
        **{name: plain(getattr(forecaster, f"{name}_")) for name in ("rank", "white_noise", "n_inducing", "reasons")},
        "candidates": None if table is None else {name: finite_or_none(table[name].tolist()) for name in table},
    }


def _candidates_to_arrays(forecaster: Any) -> dict[str, np.ndarray]:
    """Columns with numbers that JSON lacks (NaN and infinities), which are null in the header."""
    table = forecaster.validation_history_
    numbers = {} if table is None else {name: table[name].to_numpy() for name in table.select_dtypes("floating")}
    return {f"candidates.{name}": values for name, values in numbers.items() if not np.isfinite(values).all()}


def _candidates(columns: dict[str, list], arrays: dict[str, np.ndarray]) -> pd.DataFrame:
    """The table that the two above describe."""
    table = pd.DataFrame(columns)
    for name, values in arrays.items():
        require(name in table and values.shape == (len(table),), f"the candidates have no column {name[:100]!r}")
        table[name] = values
    return table


def _with_chosen(forecaster: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """The attributes of the choice; files of older versions hold the options alone, none of them chosen."""
    found = header.get("chosen", {})
    diffusion = forecaster.spec_.diffusion
    forecaster.lags_, forecaster.calendar_ = chosen_lags(forecaster.spec_.lags), tuple(header["periods"])
    forecaster.transform_ = parameter_of(found["transform"]) if found else forecaster.transform
    forecaster.rank_ = found.get("rank", getattr(diffusion, "rank", None))
    forecaster.white_noise_ = found.get("white_noise", forecaster.spec_.white_noise)
    forecaster.n_inducing_ = found.get("n_inducing", header["n_inducing"])
    forecaster.max_iter_ = forecaster.training_.max_iter
    forecaster.reasons_ = dict(found.get("reasons", {}))
    table = found.get("candidates")
    forecaster.validation_history_ = None if table is None else _candidates(table, part_of(arrays, "candidates."))
    scales = part_of(arrays, "calibration.")
    forecaster.calibration_ = HorizonScales(scales["horizons"], scales["scales"]) if scales else None


def _drift_to_json(monitor: DriftMonitor) -> dict[str, int]:
    return {"n_rows": monitor.n_rows, "alarm": monitor.alarm}


def _monitor(counts: dict[str, int] | None, arrays: dict[str, np.ndarray]) -> DriftMonitor | None:
    """Files of older versions, and of fits without held-back rows, have none."""
    if counts is None:
        return None
    return DriftMonitor(arrays["reference"], arrays["spread"], arrays["sums"], counts["n_rows"], counts["alarm"])


def _reservoir(forecaster: Any) -> dict[Any, Tail]:
    """The rows kept for training; none where the forecaster comes from a file of an older version."""
    return getattr(forecaster, "reservoir_", None) or {}


def _rows_to_json(rows: dict[Any, Tail]) -> dict[str, list]:
    """The keys of series and the kinds of their stamps."""
    return {
        "keys": [plain(key) for key in rows],
        "indices": [index_to_json(tail.index) for tail in rows.values()],
    }


def _rows_to_arrays(name: str, rows: dict[Any, Tail]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for i, tail in enumerate(rows.values()):
        parts = {"index": index_numbers(tail.index), "values": tail.values, "covariates": tail.covariates}
        arrays |= {f"{name}.{i}.{part}": value for part, value in parts.items()}
    return arrays


def _rows_of(header: dict[str, Any], name: str, arrays: dict[str, np.ndarray], axis: TimeAxis) -> dict[Any, Tail]:
    """The series that the two above describe."""
    found = {}
    for i, (key, kind) in enumerate(zip(header["keys"], header["indices"], strict=True)):
        index = index_of(kind, arrays[f"{name}.{i}.index"])
        values, covariates = arrays[f"{name}.{i}.values"], arrays[f"{name}.{i}.covariates"]
        found[_key(key)] = Tail(axis.since_first(index), values, covariates, index)
    return found


def _is_object(transform: Any) -> bool:
    parts = transform.values() if isinstance(transform, dict) else [transform]
    return any(not (part is None or isinstance(part, str)) for part in parts)


def parameter_to_json(name: str, value: Any) -> Any:
    if name in NOT_STORED or callable(value):
        return None
    if isinstance(value, specs.Spec):
        return value.to_json()
    if name == "transform" and isinstance(value, dict):
        return {"by_column": [[plain(column), choice] for column, choice in value.items()]}
    try:
        return plain(value)
    except TypeError:
        return None


def index_to_json(index: pd.Index) -> dict[str, Any]:
    if isinstance(index, pd.PeriodIndex):
        return {"kind": "period", "freq": index.freqstr}
    if isinstance(index, pd.DatetimeIndex):
        return {"kind": "datetime", "zone": None if index.tz is None else str(index.tz), "unit": index.unit}
    return {"kind": "number", "dtype": str(index.dtype)}


def index_numbers(index: pd.Index) -> np.ndarray:
    return np.asarray(index.asi8 if isinstance(index, pd.PeriodIndex | pd.DatetimeIndex) else index)


def index_of(header: dict[str, Any], values: np.ndarray) -> pd.Index:
    if header["kind"] == "period":
        return pd.PeriodIndex.from_ordinals(values, freq=header["freq"])  # type: ignore[attr-defined]
    if header["kind"] == "datetime":
        index = pd.DatetimeIndex(values.astype(f"datetime64[{header['unit']}]"))
        return index if header["zone"] is None else index.tz_localize("UTC").tz_convert(header["zone"])
    return pd.Index(values, dtype=header["dtype"])


def _arrays(forecaster: Any) -> dict[str, np.ndarray]:
    with computing():
        arrays = {f"model.{name}": value for name, value in flatten_arrays(forecaster.model_).items()}
        for k, member in enumerate(getattr(forecaster, "members_", ())[1:], start=1):
            arrays |= {f"member.{k}.{name}": value for name, value in flatten_arrays(member.model).items()}
    for name, scaler in (("y", forecaster.units_.y_scaler), ("x", forecaster.units_.x_scaler)):
        if scaler is not None:
            arrays |= {f"{name}_scaler.mean": scaler.mean, f"{name}_scaler.scale": scaler.scale}
    for i, scaler in enumerate(forecaster.units_.effects.values()):
        arrays |= {f"effect.{i}.mean": scaler.mean, f"effect.{i}.scale": scaler.scale}
    arrays |= _rows_to_arrays("tail", forecaster.tails_) | _rows_to_arrays("reservoir", _reservoir(forecaster))
    if forecaster.monitor_ is not None:
        arrays |= {f"drift.{name}": getattr(forecaster.monitor_, name) for name in ("reference", "spread", "sums")}
    if forecaster.limits_ is not None:
        arrays["limits"] = forecaster.limits_
    if forecaster.calibration_ is not None:
        arrays |= {f"calibration.{name}": value for name, value in vars(forecaster.calibration_).items()}
    arrays |= _candidates_to_arrays(forecaster)
    numbers = forecaster.history_.drop(columns="phase")
    return arrays | {f"history.{name}": numbers[name].to_numpy() for name in numbers}


def check_file(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Counts, lengths and numbers of a file against each other, before anything is built from them."""
    for part in (header["spec"], header["n_inducing"], header.get("members") or []):
        check_counts(part, arrays)
    check_finite(arrays, FINITE, LARGEST_SCALE)
    check_finite(arrays, PARAMETERS, LARGEST)
    for name in ("columns", "x_columns"):
        names = header[name] or []
        is_plain = isinstance(names, list) and all(isinstance(one, str | int | float) for one in names)
        require(is_plain and len(set(names)) == len(names), f"the names of {name} are {str(names)[:100]}")
    n_columns = len(header["columns"])
    n_covariates = None if header["x_columns"] is None else len(header["x_columns"])
    scalers = {"y_scaler": n_columns, "x_scaler": n_covariates}
    scalers |= {f"effect.{i}": n_columns for i in range(len(header.get("effects", ())))}
    for name, n in scalers.items():
        if n is not None:
            mean, scale = arrays[f"{name}.mean"], arrays[f"{name}.scale"]
            require(mean.shape == (n,) == scale.shape, f"{name} has shapes {mean.shape} and {scale.shape} for {n}")
            require((scale > 0).all(), f"{name} has a scale that is not positive")
    _check_typical(header.get("typical_values"), n_columns)
    _check_rows(header, "tail", arrays, n_columns)
    is_panel, names = header["flags"]["is_panel"], header.get("index_names", [])
    require(names or "index_names" not in header, "the index has no names, not even empty ones")
    require(is_panel is True or header["keys"] == [ONLY], f"one series has the keys {str(header['keys'])[:100]}")
    require(all(one is None or isinstance(one, str) for one in names), f"the names of the index are {str(names)[:100]}")
    known = (*PERIODS, SEASONAL, *FINE)
    require(set(header["periods"]) <= set(known) and isinstance(header["periods"], list), f"periods are not of {known}")
    if header.get("reservoir") is not None:
        _check_rows(header["reservoir"], "reservoir", arrays, n_columns)
    members = header.get("members")
    require(members is None or (isinstance(members, list) and members), "the list of members is empty")
    check_weights([one["weight"] for one in members or []])
    check_seed(header["attributes"]["seed_"])
    require(header["axis"]["unit"] > 0, f"the unit of time is {header['axis']['unit']!r}")
    check_limits(arrays.get("limits"), n_columns)
    if "calibration.scales" in arrays:
        _check_scales(arrays["calibration.horizons"], arrays["calibration.scales"], n_columns)


def _check_typical(values: Any, n_columns: int) -> None:
    """Typical values of the columns, which transforms divide by; files of older versions have none."""
    if values is not None:
        is_list = isinstance(values, list) and len(values) == n_columns
        is_positive = is_list and all(type(one) in (int, float) and 0.0 < one <= LARGEST_SCALE for one in values)
        require(is_positive, f"the typical values are {str(values)[:100]}; expected {n_columns} positive numbers")


def _check_scales(horizons: np.ndarray, scales: np.ndarray, n_columns: int) -> None:
    """Factors of a recalibration: positive, one for each column at each of some horizons in order."""
    is_table = horizons.ndim == 1 and len(horizons) > 0 and scales.shape == (len(horizons), n_columns)
    require(is_table, f"the recalibration has shapes {horizons.shape} and {scales.shape} for {n_columns} columns")
    is_law = horizons[0] > 0 and (np.diff(horizons) > 0).all() and (scales > 0).all()
    require(is_law, "the recalibration has horizons that are not in order, or factors that are not positive")


def _check_steps(spec: DynamicsSpec) -> None:
    """Lags in order from 1 on, and steps that are longer than nothing."""
    lags = chosen_lags(spec.lags)
    is_list = lags[:1] == (1,) and all(a < b for a, b in itertools.pairwise(lags))
    require(is_list, f"the lags are {str(spec.lags)[:100]}")
    require(spec.step > 0 and spec.max_gap > 0, f"step is {spec.step}, and max_gap {spec.max_gap}")


def _check_starts(forecaster: Any) -> None:
    """Each series ends with a row that a forecast can start from, and has the covariates of its calendar."""
    units = forecaster.units_
    n_known = 0 if units.x_scaler is None else len(units.x_scaler.mean)
    for key, tail in forecaster.tails_.items():
        n_columns = n_known + harmonics(tail.index[:1], units.periods).shape[1]
        require(tail.covariates.shape[1] == n_columns, f"rows of {key!r} do not have {n_columns} covariates")
        check_ticks(units.axis.gaps(tail.index), units.step, units.max_gap, key)
        require(forecaster.units_.of_series(key).ticks(tail), f"the last rows of {key!r} hold no value")


def _check_rows(header: dict[str, Any], name: str, arrays: dict[str, np.ndarray], n_columns: int) -> None:
    """Stamps, values and covariates of each series have as many rows; values may be missing, but not infinite."""
    keys = header["keys"]
    require(len(keys) == len({str(key) for key in keys}) == len(header["indices"]), f"the keys of {name} are {keys}")
    for i in range(len(keys)):
        index, values, covariates = (arrays[f"{name}.{i}.{part}"] for part in ("index", "values", "covariates"))
        is_table = index.ndim == 1 and values.shape == (len(index), n_columns) and len(covariates) == len(index)
        require(is_table and covariates.ndim == 2, f"the rows of {name} {i} have shapes that do not fit each other")
        require(not np.isinf(values).any() and np.isfinite(covariates).all(), f"rows of {name} {i} are infinite")
        require((np.diff(index) > 0).all(), f"the stamps of {name} {i} are not in order")


def rebuilt(cls: type, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """The forecaster a file describes."""
    check_file(header, arrays)
    parameters = options_of(header["parameters"])
    # Files of older versions are of fits without rows held back.
    forecaster = cls(**{"validation_fraction": 0, "calibrate": None, **parameters})
    forecaster.spec_, forecaster.training_ = specs.from_json(header["spec"]), specs.from_json(header["training"])
    _check_steps(forecaster.spec_)
    forecaster.columns_ = pd.Index(header["columns"])
    _with_chosen(forecaster, header, arrays)
    forecaster.units_ = _units(forecaster, header, arrays)
    if forecaster.freq is None and forecaster.units_.has_freq:
        # It was an offset, which JSON lacks.
        forecaster.freq = forecaster.units_.axis.step_name
    forecaster.is_series_, forecaster.is_panel_ = header["flags"]["is_series"], header["flags"]["is_panel"]
    forecaster.name_ = header["name"]
    forecaster.fh_ = None
    for name in ATTRIBUTES:
        setattr(forecaster, name, header["attributes"][name])
    forecaster.tails_ = _rows_of(header, "tail", arrays, forecaster.units_.axis)
    _check_starts(forecaster)
    # Files of older versions have none.
    kept = header.get("reservoir")
    forecaster.reservoir_ = None if kept is None else _rows_of(kept, "reservoir", arrays, forecaster.units_.axis)
    for key, rows in (forecaster.reservoir_ or {}).items():
        check_ticks(forecaster.units_.axis.gaps(rows.index), forecaster.spec_.step, forecaster.spec_.max_gap, key)
    forecaster.monitor_ = _monitor(header.get("drift"), part_of(arrays, "drift."))
    forecaster.limits_ = arrays.get("limits")
    forecaster.model_ = _model(forecaster, forecaster.spec_, header["n_inducing"], part_of(arrays, "model."))
    _with_members(forecaster, header, arrays)
    forecaster.history_ = history_of_file(header, part_of(arrays, "history."))
    return forecaster


def _units(forecaster: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Units:
    has_x = header["x_columns"] is not None
    spec = forecaster.spec_
    return Units(
        forecaster.columns_,
        _axis(header["axis"]),
        # Files of older versions have no typical values.
        ColumnTransforms.of(forecaster.transform_, forecaster.columns_, tuple(header.get("typical_values", ()))),
        Scaler(arrays["y_scaler.mean"], arrays["y_scaler.scale"]),
        pd.Index(header["x_columns"]) if has_x else None,
        Scaler(arrays["x_scaler.mean"], arrays["x_scaler.scale"]) if has_x else None,
        tuple(header["periods"]),
        header.get("has_freq", forecaster.freq is not None),
        spec.step,
        spec.lags,
        spec.max_gap,
        # One level, and those of ids before it.
        tuple(header.get("index_names", (None, None) if header["flags"]["is_panel"] else (None,))),
        # In files of older versions all series have one level and scale.
        {
            _key(key): Scaler(arrays[f"effect.{i}.mean"], arrays[f"effect.{i}.scale"])
            for i, key in enumerate(header.get("effects", ()))
        },
        tuple(_key(key) for key in header.get("added", ())),
    )


def _axis(header: dict[str, Any]) -> TimeAxis:
    """Files of older versions know no calendars of their own."""
    return TimeAxis(**{**header, "holidays": tuple(header.get("holidays", ()))})


def options_of(parameters: dict[str, Any]) -> dict[str, Any]:
    """Options of a file, but for those that files do not hold: a refit must not start what a stranger wrote there."""
    return {name: parameter_of(value) for name, value in parameters.items() if name not in NOT_STORED}


def parameter_of(value: Any) -> Any:
    if isinstance(value, dict) and "by_column" in value:
        return dict(map(tuple, value["by_column"]))
    return specs.from_json(value)


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _model(forecaster: Any, spec: DynamicsSpec, n_inducing: int, arrays: dict[str, np.ndarray]) -> Any:
    """A model of the right structure, built from its specs, filled with the arrays of the file."""
    n_columns, latent = len(forecaster.columns_), spec.latent
    dim = n_columns if latent is None else latent.dim
    n_covariates = next(iter(forecaster.tails_.values())).covariates.shape[1]
    layout = Layout(dim, chosen_lags(spec.lags), n_covariates, forecaster.units_.n_linear)
    _check_sizes(spec, layout, n_columns, arrays)
    with computing():
        n_weights = layout.n_lagged + n_covariates if "linear" in spec.drift else 0
        start: Any = Start(np.zeros((dim, n_weights)), np.zeros(dim), np.eye(dim))
        if latent is not None:
            start = LatentStart(start, np.zeros((dim, 0)), np.zeros((n_columns, dim)), np.ones(n_columns))

        def build(n: int) -> Any:
            Z = np.zeros((n, layout.n_kernel_inputs))
            return jax.tree.map(np.asarray, model_builder(spec)(spec, layout, start, Z, jax.random.key(0)))

        restored = unflatten_arrays(template_of(build, n_inducing), arrays)
    return jax.tree.map(np.asarray, restored)


def _check_sizes(spec: DynamicsSpec, layout: Layout, n_columns: int, arrays: dict[str, np.ndarray]) -> None:
    """Products of counts, each of them usual, against the arrays of the model, which hold arrays of such sizes."""
    dim = layout.dim
    if "linear" in spec.drift:
        check_size("the linear drift", dim * (layout.n_lagged + layout.n_covariates), arrays)
    check_size("a row of inputs", layout.n_kernel_inputs, arrays)
    if spec.white_noise != "constant":
        check_size("the white noise", dim * layout.n_kernel_inputs, arrays)
    if spec.latent is not None:
        check_size("the readout", dim * n_columns, arrays)
    if isinstance(spec.diffusion, Wishart):
        check_size("rank × dof", n_outputs(spec.diffusion, dim), arrays)
    if dim > USUAL_COUNT:  # a covariance to start from, which is not stored
        check_size("a covariance", dim * dim, arrays)
