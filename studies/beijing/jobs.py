"""What is run: a job fits one model once and makes its cells, each of which is one result file.

"scores" is the rolling comparison over 2016, "after" the same over January and February 2017: nothing was chosen on
these months, and 2016 is what the fits are conditioned on. "traces" and "joint" are the paper's two figures, for the
models they show.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import wishflow as wf
from wishflow import metrics
from wishflow.files.json import plain
from wishflow.specs.base import Spec
from wishflow.training.checkpoints import INTERRUPTED

from ..provenance import provenance
from .fits import checkpoint_folder, kept_fit
from .models import MODELS, TRANSFORMS, Standardised, transform_by_kind
from .protocol import Parts, roll, with_holes

TRACED = ("wishart", "diagonal", "nodrift")
JOINED = ("diagonal", "wishart")
AFTER = ("walk", "var3", "var24", "ensemble", "members", "default")
N_PATHS = 50
PAIR = ("Shunyi TEMP", "Tiantan TEMP")
HOURS = (1, 48)
N_LAST = 100
# Where training entries are deleted, forecasts start from complete rows all the same.
N_COMPLETE = 96
# Whom an estimator tells is no setting of a result.
SILENT_OPTIONS = ("callbacks", "verbose")
# Results are of models whose options are given, none of them chosen by held-back rows.
PLAIN: dict[str, Any] = {"validation_fraction": 0, "calibrate": None, "lags": 1, "calendar": False, "rank": 10}
PLAIN |= {"white_noise": "constant", "n_inducing": 100, "max_iter": None}


@dataclasses.dataclass(frozen=True)
class Job:
    """A model with its settings. `changes` are options that replace those of the model (NAME, VALUE)."""

    model: str
    is_validation: bool = False
    n_draws: int = 1000
    n_members: int = 1
    missing: float = 0.0
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def is_ours(self) -> bool:
        return MODELS[self.model].is_ours

    @property
    def name(self) -> str:
        """The name of the row: training with deleted entries is another one."""
        return self.model + ("-missing" if self.missing else "")

    @property
    def title(self) -> str:
        return label_of(self.name)

    @property
    def n_fits(self) -> int:
        """Units of work: the members, and the rolling comparison, which counts as one more."""
        return 1 + (self.n_members if self.is_ours else 0)

    @property
    def cells(self) -> tuple[str, ...]:
        """What the job makes, the quick things first."""
        extras = {"traces": self.model in TRACED, "joint": self.model in JOINED}
        extras |= {"after": self.model in AFTER and not self.is_validation}
        return (*(name for name, is_made in extras.items() if is_made and not self.missing), "scores")

    def estimator(self, parts: Parts) -> Any:
        model = MODELS[self.model]
        return wf.WishartForecaster(**self.options(parts)) if model.make is None else model.make()

    def options(self, parts: Parts) -> dict[str, Any]:
        """The options of one of our models for these series."""
        model = MODELS[self.model]
        plain = {**PLAIN, "transform": transform_by_kind(TRANSFORMS, parts.train.columns)}
        given = {**({} if model.chooses else plain), **(model.options or {})}
        return {**given, "n_members": self.n_members, **dict(self.changes)}

    def settings(self, cell: str, parts: Parts) -> dict[str, Any]:
        """What a result must have been made with, as JSON."""
        estimator = self.estimator(parts)
        options = _as_json(estimator.get_params(deep=False))
        ours: dict[str, Any] = {}
        if self.is_ours:
            rule = estimator._training(*parts.train.shape)
            ours = {"rule": rule.to_json(), "n_members": self.n_members, "missing": self.missing}
        return plain({"options": options, **ours, **self._extent(cell, parts)})

    def _extent(self, cell: str, parts: Parts) -> dict[str, Any]:
        rolled = {"n_draws": self.n_draws, "noise": "of each origin"}
        extents: dict[str, dict[str, Any]] = {
            "scores": {"n_windows": parts.n_windows, **rolled},
            "after": {"n_windows": 0 if parts.after is None else parts.after.n_windows, **rolled},
            "traces": {"n_paths": N_PATHS},
            "joint": {"pair": PAIR, "hours": HOURS, "n_draws": self.n_draws},
        }
        return extents[cell]


def _as_json(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options without those that change no result, specs as their JSON."""
    return {
        name: value.to_json() if isinstance(value, Spec) else value
        for name, value in options.items()
        if name not in SILENT_OPTIONS
    }


def label_of(name: str) -> str:
    """The name of a row for readers."""
    model = name.removesuffix("-missing")
    return MODELS[model].label + (", entries deleted" if name != model else "")


def fit_path(folder: Path, job: Job) -> Path:
    """Where a fit waits until the job is scored."""
    return folder / f"{'validation-' * job.is_validation}{job.name}.wf"


def fit(job: Job, parts: Parts, callbacks: Any = None, folder: Path | None = None) -> tuple[Any, float]:
    """The fitted model, at the end of the training part, and the seconds of its fit, which is kept in the folder.
    Baselines know no missing values: they get all entries.
    """
    if not job.is_ours:
        started = time.perf_counter()
        return job.estimator(parts).fit(parts.train), time.perf_counter() - started
    options, train = {"random_state": 0, **job.options(parts)}, with_holes(parts.train, job.missing)

    path = None if folder is None else fit_path(folder, job)

    def made() -> wf.WishartForecaster:
        checkpoints = None if path is None else checkpoint_folder(path)
        forecaster = wf.WishartForecaster(**{**options, "callbacks": callbacks, "checkpoint_dir": checkpoints})
        fitted = Standardised(forecaster, parts.mean, parts.sd).fit(train).forecaster
        if fitted.status_ == INTERRUPTED:  # half a fit is none to score; the next run goes on from its checkpoint
            raise KeyboardInterrupt
        return fitted

    rule = {name: job.settings("scores", parts)[name] for name in ("rule", "missing")}
    # A fit that waits may be older than the code.
    settings = {"options": _as_json(options), "n_rows": len(train), "commit": provenance()["commit"], **rule}
    found, seconds = kept_fit(path, settings, made)
    forecaster = Standardised(found, parts.mean, parts.sd)
    return forecaster.update(parts.train.iloc[-N_COMPLETE:]) if job.missing else forecaster, seconds


def run(
    job: Job,
    parts: Parts,
    cells: Iterable[str] = ("scores",),
    callbacks: Any = None,
    folder: Path | None = None,
) -> Iterator[dict[str, Any]]:
    """Fit once, then the content of one result file after another; a fit that lies in the folder is taken."""
    forecaster, fit_seconds = fit(job, parts, callbacks, folder)
    fitted = time.perf_counter()
    for cell in cells:
        made = _make(cell, forecaster, parts, job)
        yield {
            "cell": cell,
            "model": job.model,
            "name": job.name,
            "scored": "validation" if job.is_validation else "after" if cell == "after" else "test",
            "settings": job.settings(cell, parts),
            "fit_seconds": fit_seconds,
            "total_seconds": fit_seconds + time.perf_counter() - fitted,
            **({"objective_per_row": objective_per_row(forecaster, parts)} if job.is_ours else {}),
            **({"chosen": chosen_options(forecaster.forecaster)} if MODELS[job.model].chooses else {}),
            **made,
            "provenance": provenance(),
        }


def _make(cell: str, forecaster: Any, parts: Parts, job: Job) -> dict[str, Any]:
    if cell == "traces":
        return traces(forecaster, parts)
    if cell == "joint":
        return joint(forecaster, parts, job.n_draws)
    if cell == "after":
        assert parts.after is not None, "jobs of validation parts have no such cell"
        return roll(copy.copy(forecaster).update(parts.rest), parts.after, job.n_draws)
    return roll(forecaster, parts, job.n_draws)


def chosen_options(forecaster: wf.WishartForecaster) -> dict[str, Any]:
    """What a fit chose by the rows it held back, and what was kept of training."""
    names = ("lags", "calendar", "transform", "rank", "white_noise", "n_inducing", "max_iter", "status", "reasons")
    weights = np.asarray(getattr(forecaster, "weights_", [1.0]))
    return {**{name: getattr(forecaster, f"{name}_") for name in names}, "weights": weights}


def objective_per_row(forecaster: Standardised, parts: Parts) -> float:
    """The objective of the first member at the end of training, a mean over the last iterations."""
    history = forecaster.history_
    first = history[history["member"] == 0] if "member" in history else history
    return float(first["objective"].iloc[-N_LAST:].mean()) / len(parts.train)


def path_log_density(forecaster: Standardised, y: pd.DataFrame, seed: int) -> np.ndarray:
    """log p(y_t | x_{t−1}) at the rows of y, which follow the end, for one simulated path x.

    A forecast of one draw is that path, and the mixture over it the density of its own next step.
    """
    return forecaster.forecast(len(y), n_draws=1, random_state=seed).log_prob(y).to_numpy()


def traces(forecaster: Standardised, parts: Parts, n_paths: int = N_PATHS) -> dict[str, Any]:
    """Log densities of the hours of the first window under simulated paths: the paper's figure of traces.

    Path s starts at the last training row and is simulated freely. What is traced is log p(y_t | x_{t−1}^s), the
    density of the model's step into hour t from where the path stood an hour before, at the row that was observed,
    joint over all series, in standardised units; "mean" and "standard_error" are over the paths, as in the paper's
    figure. The paper scores N(y_t; x_t^s, Σ + Λ) instead, where x_t^s holds the noise of the step already. "mixture"
    is log 1/S Σ_s p(y_t | x_{t−1}^s), the score of the forecast itself.
    """
    rows = parts.first_window
    each = np.stack([path_log_density(forecaster, rows, seed) for seed in range(n_paths)])
    return {
        "start": str(rows.index[0]),
        "mean": each.mean(axis=0),
        "standard_error": each.std(axis=0, ddof=1) / np.sqrt(n_paths),
        "mixture": metrics.mixture_log_density(each),
    }


def joint(forecaster: Standardised, parts: Parts, n_draws: int) -> dict[str, Any]:
    """Forecast draws of two temperatures (°C) at some hours of the first window, and what was observed then.

    Two stations with weather of their own: the paper's pair, Tiantan and Dongsi, shares one weather station.
    """
    names, place = list(PAIR), [hour - 1 for hour in HOURS]
    mean, sd = parts.mean[names].to_numpy(), parts.sd[names].to_numpy()
    found = forecaster.forecast(list(HOURS), n_draws=n_draws)
    draws = mean + sd * found.samples.sel(variable=names).values
    observed = mean + sd * parts.first_window[names].to_numpy()[place]
    hours = [
        {
            "hour": hour,
            "time": str(parts.first_window.index[hour - 1]),
            "draws": np.round(draws[:, i].T, 3),  # one row for each of the two series
            "observed": observed[i],
            "correlation": float(np.corrcoef(draws[:, i].T)[0, 1]),
        }
        for i, hour in enumerate(HOURS)
    ]
    return {"series": names, "hours": hours}
