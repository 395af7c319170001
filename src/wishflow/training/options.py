"""From the options of an estimator to a training spec."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import OptionError, unknown_option
from ..specs import checks
from .specs import TrainingSpec

WHOLE_NUMBERS = ("n_steps", "max_iter", "batch_size", "n_train_samples")


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """Options of an estimator that take the place of a preset's values; None leaves the preset's.

    `calibrate` and `hyperprior` are "auto", which leaves the preset's, or None: no recalibration, no prior.

    They are as a user gave them: `with_options` checks them. A `learning_rate` that is a function of the step (an optax
    schedule) is no number of a spec: training takes it as it is.
    """

    n_steps: Any = None
    max_iter: Any = None
    batch_size: Any = None
    n_train_samples: Any = None
    learning_rate: Any = None
    path_average: Any = None
    tol: Any = None
    validation_fraction: Any = None
    state_dim: int | None = None
    calibrate: Any = "auto"
    hyperprior: Any = "auto"

    @property
    def schedule(self) -> Callable | None:
        """The learning rate as a function of the step, where it is one."""
        return self.learning_rate if callable(self.learning_rate) else None


def preset_spec(
    preset: Any, presets: Mapping[str, Callable[..., TrainingSpec]], n_rows: int, n_columns: int, **more: Any
) -> TrainingSpec:
    """The training spec of a preset: by its name a rule that is given the sizes of the data, or a spec as it is."""
    if isinstance(preset, TrainingSpec):
        return preset
    if isinstance(preset, str) and preset in presets:
        return presets[preset](n_rows, n_columns, **more)
    if isinstance(preset, str):
        raise unknown_option("preset", preset, list(presets))
    raise OptionError(f"preset={preset!r} given; expected one of {list(presets)}, or a TrainingSpec.")


def with_options(training: TrainingSpec, options: TrainingOptions) -> TrainingSpec:
    """The training spec with the options that were given in place of its values.

    Three options change a second value with their own:

    - `max_iter`: the warm-up of the KL terms keeps its share of the iterations.
    - `batch_size` counts rows, also where the spec counts paths.
    - `path_average="log"` takes one path for each row where the spec averages densities, unless `n_train_samples` is
      given too: several paths are for their density.
    """
    given: dict[str, Any] = {
        name: checks.positive_int(name, value)
        for name in WHOLE_NUMBERS
        if (value := getattr(options, name)) is not None
    }
    if options.learning_rate is not None and options.schedule is None:
        given["learning_rate"] = checks.positive_rate("learning_rate", options.learning_rate)
    if options.tol is not None:
        given["tolerance"] = checks.tolerance(options.tol)
    if options.validation_fraction is not None:
        given["validation_fraction"] = checks.fraction("validation_fraction", options.validation_fraction)
    for name in ("calibrate", "hyperprior"):
        value = getattr(options, name)
        if value not in ("auto", None):
            raise OptionError(f"{name}={value!r} given; expected 'auto' or None.")
        if value is None:
            given[name] = False
    if options.state_dim is not None:
        given["state_dim"] = options.state_dim
    if options.path_average is not None:
        given["path_average"] = options.path_average
        if options.path_average == "log" and training.path_average == "density":
            given.setdefault("n_train_samples", 1)
    if "batch_size" in given:
        given["batch_counts_paths"] = False
    if "max_iter" in given:
        given["kl_warmup"] = training.kl_warmup * given["max_iter"] // max(training.max_iter, 1)
    return dataclasses.replace(training, **given)
