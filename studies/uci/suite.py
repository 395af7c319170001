"""What the suite consists of: data sets, models, and cells (a data set, a model and a preset over all splits)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import wishflow as wf
from wishflow.datasets import split
from wishflow.regression.presets import PRESETS

DATA = ("boston", "concrete", "kin8nm", "naval", "power", "protein", "wine_white", "bike_paper")
N_SPLITS = 20
# What an estimator tells, to whom, and where it runs, is no setting of a result.
SILENT_OPTIONS = ("callbacks", "verbose", "backend", "backend_params")

# Measured roughly, for estimates of time alone: an iteration of SGP in steps of a flow (it has line searches), and how
# many rows a step costs on an accelerator before the first one is computed.
SGP_STEP = 4
STEP_OVERHEAD = 5000
# Settings of the rule that change nothing where there is no flow.
FLOW_SETTINGS = (
    *("max_iter", "learning_rate", "n_steps", "n_train_samples", "path_average", "kl_warmup", "warm_iter"),
    *("flow_dtype", "output_lengthscale", "field_lengthscale", "field_variance"),
    *("field_inducing", "dof", "validation_fraction", "batch_counts_paths", "state_dim", "posterior"),
)
# Settings of stochastic steps, which SGP has only where its bound is not collapsed.
BATCH_SETTINGS = ("batch_size", "natural_rate", "warm_rate", "decay", "rate_warmup", "fixed_inducing")


@dataclasses.dataclass(frozen=True)
class Model:
    """A column of the paper's tables: its name there, the name of its colour, and how the estimator is made."""

    label: str
    colour: str
    make: Callable[..., Any]


# The mixture of 100 paths, the estimator's default, is still a biased estimate of the density of infinitely many.
N_PATHS = 1000
_flow = functools.partial(wf.FlowRegressor, n_predict_samples=N_PATHS)

MODELS = {
    "sgp": Model("SGP", "SGP", wf.SparseGPRegressor),
    "nonoise": Model("No noise", "No noise", functools.partial(_flow, diffusion="none")),
    "diffgp": Model("diffGP", "diffGP", functools.partial(_flow, diffusion="gp")),
    "diffwgp5": Model("diffWGP, ρ = 5", "diffWGP", functools.partial(_flow, rank=5)),
    "diffwgp10": Model("diffWGP, ρ = 10", "diffWGP, ρ = 10", functools.partial(_flow, rank=10)),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """One model on all splits of one data set: what is trained together, and one result file."""

    data: str
    model: str
    preset: str = "fast"
    n_splits: int = N_SPLITS

    @property
    def title(self) -> str:
        return f"{self.data}, {MODELS[self.model].label}"

    @property
    def n_fits(self) -> int:
        return self.n_splits

    def estimator(self) -> Any:
        return MODELS[self.model].make(preset=self.preset)

    def settings(self, n_rows: int, n_inputs: int) -> dict[str, Any]:
        """What a result must have been made with, as JSON: options, and the part of the preset's rule that matters."""
        options = self.estimator().get_params(deep=False)
        n_train = len(split(n_rows, 0)[0])
        rule = PRESETS[self.preset](n_train, n_inputs)
        is_collapsed = rule.collapsed and n_train <= rule.collapsed_limit
        unused = () if self.model != "sgp" else FLOW_SETTINGS + (BATCH_SETTINGS if is_collapsed else ())
        return {
            "preset": self.preset,
            "n_splits": self.n_splits,
            "options": {name: value for name, value in options.items() if name not in SILENT_OPTIONS},
            "rule": {name: value for name, value in rule.to_json().items() if name not in unused},
        }

    def work(self, n_rows: int, n_inputs: int, *, overhead: int = 0) -> float:
        """About how much there is to compute, for estimates of time: rows that pass a step of the solver, or the GP.

        `overhead` are the rows that a step costs before the first one (`STEP_OVERHEAD` on an accelerator).
        """
        n_train = len(split(n_rows, 0)[0])
        rule = PRESETS[self.preset](n_train, n_inputs)
        n_paths = 1 if self.model in ("sgp", "nonoise") else rule.n_train_samples
        batch = min(n_train, rule.batch_rows(n_paths))
        if self.model == "sgp":
            n_steps, batch = rule.sgp_iter, n_train if rule.collapsed else batch
            return float(self.n_splits * SGP_STEP * n_steps * (batch + overhead))
        return float(self.n_splits * rule.max_iter * rule.n_steps * (batch * n_paths + overhead))


def cells(data: Iterable[str], models: Iterable[str], preset: str, n_splits: int) -> list[Cell]:
    """The cells of a grid, one data set after another."""
    models = list(models)
    return [Cell(name, model, preset, n_splits) for name in data for model in models]
