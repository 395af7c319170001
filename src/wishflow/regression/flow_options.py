"""The options of flows: how they are trained, and the model that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import specs
from ..kernels.specs import KERNELS, KernelSpec, names_dims
from ..likelihoods import LikelihoodSpec
from ..specs import checks
from ..training.options import TrainingOptions, preset_spec, with_options
from ..training.specs import TrainingSpec
from ..wishart.specs import DIFFUSIONS, DiffusionSpec, GPDiffusion, Wishart
from .specs import FlowSpec


def flow_training(
    estimator: Any,
    presets: Mapping[str, Callable[..., TrainingSpec]],
    n_rows: int,
    n_inputs: int,
) -> TrainingSpec:
    """How the flow of a regressor or classifier is trained."""
    state_dim = estimator.state_dim
    if state_dim is None and names_dims(estimator.kernel):
        state_dim = n_inputs  # a kernel that names its inputs means those of the data
    state_dim = None if state_dim is None else checks.state_dim(state_dim, n_inputs)
    options = TrainingOptions(
        n_steps=estimator.n_steps,
        max_iter=estimator.max_iter,
        batch_size=estimator.batch_size,
        n_train_samples=estimator.n_train_samples,
        learning_rate=estimator.learning_rate,
        path_average=estimator.path_average,
        tol=estimator.tol,
        validation_fraction=estimator.validation_fraction,
        state_dim=state_dim,
        calibrate=estimator.calibrate,
        hyperprior=estimator.hyperprior,
    )
    wider = {} if state_dim is None else {"state_dim": state_dim}
    training = with_options(preset_spec(estimator.preset, presets, n_rows, n_inputs, **wider), options)
    if training.state_dim is not None:
        checks.state_dim(training.state_dim, n_inputs)
    return training


def flow_spec(estimator: Any, training: TrainingSpec, likelihood: LikelihoodSpec) -> FlowSpec:
    """The flow an estimator's options describe; `rank`, `columns` and the preset's ν belong to the name "wishart", the
    preset's form of q to it and to "gp".

    The preset's ν is for shared columns, whose penalty it multiplies, and for J drawn afresh at each step: with one
    column of its own, or one draw for a whole path, Σ has rank one.
    """
    is_usual = estimator.columns == "shared" and estimator.sampling == "marginal"
    dof, posterior = training.dof if is_usual else None, training.posterior
    wishart = Wishart(checks.rank_or_none(estimator.rank), dof, estimator.columns, posterior=posterior)
    names = {**DIFFUSIONS, "wishart": wishart, "gp": GPDiffusion(posterior)}
    return FlowSpec(
        specs.resolve("kernel", estimator.kernel, KERNELS, KernelSpec),
        likelihood,
        specs.resolve("diffusion", estimator.diffusion, names, DiffusionSpec),
        checks.flow_time(estimator.flow_time),
        training.n_steps,
        estimator.sampling,
        checks.flag("time_dependent", estimator.time_dependent),
        estimator.drift_posterior,
    )
