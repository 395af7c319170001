"""What a fitted regressor or classifier says about itself."""

from __future__ import annotations

from typing import Any

from ..training.journal import skipped_words
from ..wishart.collapse import mean_variances, noise_ratio, ratio_words
from .flow import FlowModel

REMEDY = (
    "predictions are those of a flow without noise; compare diffusion='none', or try fewer degrees of freedom or a "
    "longer warm-up of the penalties (dof and kl_warmup of a TrainingSpec)."
)


def summary_of(estimator: Any) -> str:
    """Iterations, how they ended, names of columns, skipped steps, and the size of the diffusion."""
    members = f", {estimator.n_members} members" if estimator.n_members > 1 else ""
    lines = [
        f"{type(estimator).__name__}, {estimator.n_features_in_} inputs, {estimator.n_iter_} iterations{members}",
        f"status: {estimator.status_}",
    ]
    columns = {"targets": estimator.target_names_, "inputs": getattr(estimator, "feature_names_in_", None)}
    lines += [f"{what}: {', '.join(map(str, names))}" for what, names in columns.items() if names is not None]
    lines += skipped_words(estimator.history_)
    ratio = diffusion_ratio(estimator.model_)
    return "\n".join(lines if ratio is None else [*lines, ratio_words(ratio, REMEDY)])


def diffusion_ratio(model: Any) -> float | None:
    """√(T tr Σ̄/D) of a flow, at its inducing points, divided by the standard deviation of Gaussian noise of targets.

    None without a flow, without diffusion, and where targets have no noise of their own (labels and counts).
    """
    if not isinstance(model, FlowModel) or not model.has_noise or model.flow_time == 0.0:
        return None
    found = mean_variances(model.field)
    return None if found is None else noise_ratio(model.flow_time * sum(found), model)
