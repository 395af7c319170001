"""Model files of estimators: specs and plain options in the header, arrays beside it; loading runs no code of the file.

Classes come from the table in `wishflow.estimators` (or from `custom`) and specs from their registry, never by a name
that is looked up elsewhere.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import specs
from ..errors import ModelFileError
from ..files.arrays import flatten_arrays, part_of, unflatten_arrays
from ..files.json import plain
from ..files.model_file import NOT_STORED, write_model
from ..files.trust import (
    LARGEST,
    LARGEST_SCALE,
    MOST_PATH_STEPS,
    check_counts,
    check_finite,
    check_seed,
    check_size,
    check_weights,
    require,
    template_of,
    text_list,
)
from ..kernels import RBF
from ..likelihoods import Gaussian
from ..numerics.devices import computing
from ..numerics.scaling import Scaler
from ..training.journal import history_of_file
from ..wishart.specs import Wishart
from ..wishart.wishart import n_outputs
from . import flow, sparse_gp
from .calibration import Calibration
from .specs import FlowSpec, SparseGPSpec

# The largest entry of a row whose square would be zero.
SMALLEST_ROW = 1e-150
OUT_OF_FOLD = ("oof_log_prob_", "oof_predictions_")
PLAIN_ATTRIBUTES = ("n_features_in_", "n_iter_", "seed_", "status_", "is_multi_output_")

# Names of arrays in files of format version 1, and what they are called since flows and series have one field.
RENAMED = {
    "field.drift_mean": "field.gp.mean",
    "field.posterior.": "field.noise.posterior.",
    "field.scale.": "field.noise.scale.",
    "field.white.raw": "field.white.base.raw",
}


def present_name(name: str) -> str:
    """The name that an array of format version 1 has now."""
    for old, new in RENAMED.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def save_estimator(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator to one file, atomically."""
    header = {
        "class": type(estimator).__name__,
        "parameters": {
            name: _parameter_to_json(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "spec": estimator.spec_.to_json(),
        "training": estimator.training_.to_json(),
        "shapes": _shapes(estimator, estimator.model_),
        "attributes": {n: plain(getattr(estimator, n)) for n in PLAIN_ATTRIBUTES if hasattr(estimator, n)},
        "names": _names(estimator),
        "calibration": None if hasattr(estimator, "members_") else _calibration_shapes(estimator.calibration_),
        "members": _members(estimator),
        "history_columns": estimator.history_.columns.tolist(),
        "history_phases": estimator.history_["phase"].tolist(),
    }
    write_model(path, header, _arrays(estimator))


def _parameter_to_json(name: str, value: Any) -> Any:
    if name in NOT_STORED or callable(value):
        return None
    if isinstance(value, specs.Spec):
        return value.to_json()
    try:
        return plain(value)
    except TypeError:  # an object, such as a random generator, is no part of what was learnt
        return None


def _shapes(estimator: Any, model: Any) -> dict[str, int]:
    width = 1 if hasattr(estimator, "classes_") else model.output.posterior.mean.shape[0]
    n_field = model.field.basis.Z.shape[0] if hasattr(model, "field") else 0
    n_inducing, state_dim = model.output.basis.Z.shape
    return {"n_inducing": n_inducing, "n_field_inducing": n_field, "n_targets": width, "state_dim": state_dim}


def _members(estimator: Any) -> list[dict[str, Any]] | None:
    """What each candidate is; None where there is one model alone."""
    if not hasattr(estimator, "members_"):
        return None
    return [
        {
            "name": name,
            "weight": estimator.weights_[name],
            "n_members": len(models),
            "spec": estimator.member_specs_[name].to_json(),
            "shapes": _shapes(estimator, models[0]),
            "calibration": _calibration_shapes(estimator.calibration_[name]),
        }
        for name, models in estimator.members_.items()
    ]


def _calibration_shapes(calibration: Calibration | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    by_input = calibration.log_scale
    return {
        "n_targets": len(calibration.scale),
        "n_tails": len(calibration.tail_share),
        "inducing": None if by_input is None else list(by_input.output.basis.Z.shape),
    }


def _names(estimator: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"targets": getattr(estimator, "target_names_", None)}
    if hasattr(estimator, "feature_names_in_"):
        names["features"] = [str(name) for name in estimator.feature_names_in_]
    if hasattr(estimator, "classes_") and estimator.classes_.dtype.kind in "OU":
        names["classes"], names["classes_kind"] = estimator.classes_.tolist(), estimator.classes_.dtype.kind
    return names


def _arrays(estimator: Any) -> dict[str, np.ndarray]:
    parts = {"model": estimator.model_}
    if not hasattr(estimator, "members_"):
        parts["calibration"] = estimator.calibration_
    for i, (candidate, models) in enumerate(getattr(estimator, "members_", {}).items()):
        parts |= {f"member.{i}.{k}": model for k, model in enumerate(models)}
        parts[f"member.{i}.calibration"] = estimator.calibration_[candidate]
    with computing():
        arrays = {
            f"{prefix}.{name}": value
            for prefix, part in parts.items()
            if part is not None
            for name, value in flatten_arrays(part).items()
        }
    for part in ("x_scaler_", "y_scaler_"):
        scaler = getattr(estimator, part)
        arrays |= {f"{part}.mean": scaler.mean, f"{part}.scale": scaler.scale}
    arrays["directions_"] = estimator.directions_
    arrays |= {name: getattr(estimator, name) for name in OUT_OF_FOLD if hasattr(estimator, name)}
    numbers = estimator.history_.drop(columns="phase")
    arrays |= {f"history.{name}": numbers[name].to_numpy() for name in numbers}
    if hasattr(estimator, "classes_") and estimator.classes_.dtype.kind not in "OU":
        arrays["classes_"] = estimator.classes_
    return arrays


def _template(header: dict[str, Any], kind: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    """A model of the right structure: built from its specs, with shapes from the file.

    `kind` has the spec and the shapes: the header itself, or what it says of a candidate. `arrays` are all of the file.
    """
    spec, training = specs.from_json(kind["spec"]), specs.from_json(header["training"])
    shapes = kind["shapes"]
    dim = shapes.get("state_dim", header["attributes"]["n_features_in_"])  # older files have no wider states
    base = SparseGPSpec(spec.kernel, spec.likelihood)
    if isinstance(spec, FlowSpec) and isinstance(spec.diffusion, Wishart):
        check_size("rank × dof", n_outputs(spec.diffusion, dim), arrays)

    def build(n_inducing: int, n_field: int) -> Any:
        model: Any = sparse_gp.build(base, training, np.zeros((n_inducing, dim)), shapes["n_targets"])
        if isinstance(spec, FlowSpec):
            model = flow.build(spec, training, model, np.zeros((n_field, dim)), jax.random.key(0))
        return jax.tree.map(np.asarray, model)

    return template_of(build, shapes["n_inducing"], shapes["n_field_inducing"])


def _restored_calibration(
    header: dict[str, Any], shapes: dict[str, Any] | None, arrays: dict[str, np.ndarray]
) -> Calibration | None:
    if shapes is None:
        return None
    found = jax.tree.map(np.asarray, unflatten_arrays(_calibration_template(header, shapes), arrays))
    shares, widths = found.tail_share, found.tail_width
    is_law = (found.scale > 0).all() and (widths > 0.0).all() and (shares >= 0.0).all() and shares.sum() <= 1.0
    is_law &= len(shares) > 0
    require(is_law, "the recalibration has scales that are not positive, or tail shares that are no probabilities")
    return found


def _calibration_template(header: dict[str, Any], shapes: dict[str, Any]) -> Calibration:
    training, n_targets = specs.from_json(header["training"]), shapes["n_targets"]
    scale, one = np.ones(n_targets), np.ones(shapes["n_tails"])
    if shapes["inducing"] is None:
        return Calibration(scale, one, one)
    n_inducing, dim = shapes["inducing"]

    def build(n: int) -> Any:
        gp = sparse_gp.build(SparseGPSpec(RBF(), Gaussian()), training, np.zeros((n, dim)), n_targets)
        return jax.tree.map(np.asarray, gp)

    return Calibration(scale, one, one, template_of(build, n_inducing), scale)


# Arrays that are numbers everywhere, and those that parts of models are made of.
FINITE = ("x_scaler_.", "y_scaler_.", "directions_")
PARAMETERS = ("model.", "member.", "calibration.")
MOST_PATHS = 1_000_000
MOST_STEPS = 1_000_000


def check_file(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Counts, lengths and numbers of a file against each other, before anything is built from them."""
    kinds = header.get("members") or []
    for part in (header["spec"], header["shapes"], header.get("calibration"), kinds):
        check_counts(part, arrays)
    check_finite(arrays, FINITE, LARGEST_SCALE)
    check_finite(arrays, PARAMETERS, LARGEST)
    for name, array in arrays.items():
        if name.endswith("scale.raw") and array.ndim == 2:  # L, whose rows are divided by their norms
            require((np.abs(array).max(axis=-1, initial=0.0) > SMALLEST_ROW).all(), f"{name} has a row of zeros")
    n_inputs, n_targets = header["attributes"]["n_features_in_"], header["shapes"]["n_targets"]
    for name, n in (("x_scaler_", n_inputs), ("y_scaler_", n_targets)):
        mean, scale = arrays[f"{name}.mean"], arrays[f"{name}.scale"]
        require(mean.shape == (n,) and scale.shape == (n,), f"{name} has shapes {mean.shape} and {scale.shape} for {n}")
        require((scale > 0).all(), f"{name} has a scale that is not positive")
    names = header["names"]
    if names.get("targets") is not None:
        text_list(names["targets"], n_targets, "names of targets")
    if "features" in names:
        text_list(names["features"], n_inputs, "names of inputs")
    check_weights([kind["weight"] for kind in kinds])
    require(all(kind["n_members"] >= 1 for kind in kinds), "a candidate has no members")
    check_counts({"seed_": 0, "n_iter_": header["attributes"]["n_iter_"]}, arrays)
    check_seed(header["attributes"]["seed_"])
    n_steps = header["spec"].get("n_steps", 1)
    require(isinstance(n_steps, int) and 0 < n_steps <= MOST_STEPS, f"n_steps is {n_steps!r}")
    n_paths = header["parameters"].get("n_predict_samples", 1)
    require(isinstance(n_paths, int) and 0 < n_paths <= MOST_PATHS, f"n_predict_samples is {n_paths!r}")
    require(n_steps * n_paths <= MOST_PATH_STEPS, f"predictions would take {n_paths} paths of {n_steps} steps")


def _check_classes(estimator: Any) -> None:
    """As many classes as the likelihood has, all different."""
    n = len(estimator.classes_)
    expected = {2} if estimator.model_.likelihood.n_latent == 1 else {estimator.model_.likelihood.n_latent}
    require(n in expected and len(set(estimator.classes_.tolist())) == n, f"there are {n} classes, expected {expected}")


def restore(estimator: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays_of_model = part_of(arrays, "model.")
    if header["file"]["format_version"] == 1:
        arrays_of_model = {present_name(name): value for name, value in arrays_of_model.items()}
    restored = unflatten_arrays(_template(header, header, arrays), arrays_of_model)
    estimator.model_ = jax.tree.map(np.asarray, restored)
    # Files of version 0.1 have no recalibration.
    estimator.calibration_ = _restored_calibration(header, header.get("calibration"), part_of(arrays, "calibration."))
    for i, kind in enumerate(header.get("members") or []):
        if i == 0:
            estimator.members_, estimator.weights_, estimator.member_specs_ = {}, {}, {}
            estimator.calibration_ = {}
        name, template = kind["name"], _template(header, kind, arrays)
        models = [unflatten_arrays(template, part_of(arrays, f"member.{i}.{k}.")) for k in range(kind["n_members"])]
        estimator.members_[name] = [jax.tree.map(np.asarray, model) for model in models]
        estimator.weights_[name], estimator.member_specs_[name] = kind["weight"], specs.from_json(kind["spec"])
        found = _restored_calibration(header, kind["calibration"], part_of(arrays, f"member.{i}.calibration."))
        estimator.calibration_[name] = found
    for name in OUT_OF_FOLD:
        if name in arrays:
            setattr(estimator, name, arrays[name])
    estimator.spec_, estimator.training_ = specs.from_json(header["spec"]), specs.from_json(header["training"])
    for name in ("x_scaler_", "y_scaler_"):
        setattr(estimator, name, Scaler(**{f.name: arrays[f"{name}.{f.name}"] for f in dataclasses.fields(Scaler)}))
    estimator.directions_ = _directions(header, arrays, len(estimator.x_scaler_.mean))
    for name in PLAIN_ATTRIBUTES:
        if name in header["attributes"]:
            setattr(estimator, name, header["attributes"][name])
    _restore_names(estimator, header["names"], arrays)
    if hasattr(estimator, "classes_"):
        _check_classes(estimator)
    else:
        is_known = isinstance(getattr(estimator, "is_multi_output_", None), bool)
        require(is_known, "is_multi_output_ is neither true nor false")
    estimator.history_ = history_of_file(header, part_of(arrays, "history."))


def _directions(header: dict[str, Any], arrays: dict[str, np.ndarray], n_inputs: int) -> np.ndarray:
    """What widens the state; none in files from before there was such a thing."""
    if "state_dim" not in header["shapes"]:
        return np.zeros((n_inputs, 0))
    directions, expected = arrays["directions_"], (n_inputs, header["shapes"]["state_dim"] - n_inputs)
    if directions.shape != expected:
        raise ModelFileError(
            f"the file has directions of shape {directions.shape}; expected {expected}: it was changed after it was "
            "written; save the model again."
        )
    return directions


def _restore_names(estimator: Any, names: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    estimator.target_names_ = names.get("targets")  # files of version 0.1 have none
    if "features" in names:
        estimator.feature_names_in_ = np.array(names["features"], dtype=object)
    if "classes" in names:
        estimator.classes_ = np.array(names["classes"], dtype=object if names["classes_kind"] == "O" else str)
    elif "classes_" in arrays:
        estimator.classes_ = arrays["classes_"]
