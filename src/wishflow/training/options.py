"""From the options of an estimator to a training spec."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import unknown_option
from ..kernels.specs import names_dims
from ..specs import checks
from .specs import TrainingSpec

WHOLE_NUMBERS = ("n_steps", "max_iter", "batch_size", "n_train_samples")


def chosen_training(estimator: Any, presets: dict[str, Any], n_rows: int, n_inputs: int, **more: Any) -> TrainingSpec:
    """The preset's rule for N, D and whatever else it asks for; options that were given win."""
    if not isinstance(estimator.preset, str) or estimator.preset not in presets:
        raise unknown_option("preset", estimator.preset, list(presets))
    width = getattr(estimator, "state_dim", None)
    if width is None and hasattr(estimator, "state_dim") and names_dims(estimator.kernel):
        width = n_inputs  # who picks inputs for a kernel means those that there are
    wider = {} if width is None else {"state_dim": checks.state_dim(width, n_inputs)}
    chosen = presets[estimator.preset](n_rows, n_inputs, **wider, **more)
    # attributes, not get_params: a subclass may leave options out of its own signature
    options = {
        name: getattr(estimator, name, None)
        for name in (*WHOLE_NUMBERS, "learning_rate", "path_average", "tol", "validation_fraction")
    }
    given: dict[str, Any] = {n: checks.positive_int(n, options[n]) for n in WHOLE_NUMBERS if options[n] is not None}
    if options["learning_rate"] is not None and not callable(options["learning_rate"]):
        given["learning_rate"] = checks.positive_rate("learning_rate", options["learning_rate"])
    if options["path_average"] is not None:
        given["path_average"] = options["path_average"]
        if options["path_average"] == "log" and chosen.path_average == "density":
            given.setdefault("n_train_samples", 1)  # several paths are for their density
    if options["tol"] is not None:
        given["tolerance"] = checks.tolerance(options["tol"])
    if options["validation_fraction"] is not None:
        given["validation_fraction"] = checks.fraction("validation_fraction", options["validation_fraction"])
    if "batch_size" in given:  # who says how large a batch is means rows
        given["counts_paths"] = False
    if "max_iter" in given:  # the warm-up of the KL terms keeps its share of the iterations
        given["kl_warmup"] = chosen.kl_warmup * given["max_iter"] // chosen.max_iter
    return dataclasses.replace(chosen, **given)
