"""Presets: how a model is trained, as a function of the number of rows and inputs alone.

`fast` is one rule for all data sets, chosen on validation parts of the training data (studies/tuning.md,
docs/decisions.md); `paper` are the paper's own settings.
"""

from __future__ import annotations

import dataclasses

from ..training.specs import TrainingSpec

# Up to here a Wishart diffusion has one degree of freedom, and states are wider than the inputs.
FEW_INPUTS = 10
# Degrees of freedom for more inputs and few rows, whatever the rank; ranks 5 and 10 were tried.
FEW_DOF = 5
# Flows of fewer rows are trained for the mean of logs, and their states are the inputs.
FEW_ROWS = 600
WIDE_STATE = 12
# Sparse GPs of fewer rows have a prior on their hyperparameters. More rows than that decide by themselves.
ROWS_FOR_PRIOR = 250
# A kernel variance of 1 would have to grow by steps of the learning rate; on breast_cancer it ends at several hundred.
LOGIT_VARIANCE = 100.0
LENGTHSCALE_FACTOR = 2.0


def paper_preset(n_rows: int, n_inputs: int, state_dim: int | None = None) -> TrainingSpec:
    """The paper's own settings, the same for every data set."""
    del n_rows, n_inputs
    return TrainingSpec(
        max_iter=40_000,
        batch_size=2000,
        learning_rate=1e-3,
        n_steps=20,
        n_train_samples=6,
        warm_iter=10_000,
        sgp_iter=40_000,
        warm_rate=1e-2,
        kl_warmup=4000,
        collapsed=False,
        natural_rate=None,
        decay=0.0,
        output_lengthscale=2.0,
        output_variance=2.0,
        noise_variance=0.01,
        field_lengthscale=2.0,
        field_variance=0.01,
        state_dim=state_dim,
        posterior="full",
    )


def wide_state(n_rows: int, n_inputs: int) -> int | None:
    """How many dimensions the state of a flow has; None: those of the inputs."""
    return min(3 * n_inputs, WIDE_STATE) if n_rows >= FEW_ROWS and n_inputs <= FEW_INPUTS else None


def fast_preset(n_rows: int, n_inputs: int, state_dim: int | None = None) -> TrainingSpec:
    """A function of N and D alone that predicts as well as the paper's settings or better, sooner.

    `state_dim` is that of a user who gives it.
    """
    # Quadratic below 500 rows, so that a fit to a hundred rows takes seconds: they have little to learn a flow from.
    max_iter = min(max(300, n_rows**2 // 57), 4000 if n_rows < 2000 else 6000)
    state_dim = wide_state(n_rows, n_inputs) if state_dim is None else state_dim
    scale = max(1.0, n_inputs) ** 0.5
    # Distances grow with the dimensions that there are.
    wide_scale = scale if state_dim is None else state_dim**0.5
    # The density over paths lets noise of the paths explain noise in y, the more of them the better; a few hundred rows
    # are overfitted by it. Thousands of rows have smaller batches for it, at the same cost.
    n_paths = 1 if n_rows < FEW_ROWS else 2 if n_rows < 2000 else 8
    return TrainingSpec(
        max_iter=max_iter,
        batch_size=256 if n_rows < 2000 else 2000,
        learning_rate=min(max(2e-5 * n_rows, 0.005), 0.02),
        n_steps=3,
        batch_counts_paths=n_rows >= 2000,
        n_train_samples=n_paths,
        path_average="density" if n_paths > 1 else "log",
        warm_iter=20,
        sgp_iter=400,
        warm_rate=2e-2,
        kl_warmup=max_iter // 2,
        decay=0.8,
        output_lengthscale=wide_scale,
        # Up to 16 inputs 2, as in the paper; with many inputs no row would then say anything about another.
        sgp_lengthscale=min(scale, max(2.0, 0.5 * scale)),
        output_variance=1.0,
        noise_variance=0.1,
        field_lengthscale=wide_scale,
        field_variance=0.01,
        # The penalty of shared columns grows with ν. With few inputs the data are worth more noise than ν = ρ lets
        # through; with many, the flow hides in it what it should explain. A few hundred rows do not pay for ν = 10.
        dof=1 if n_inputs <= FEW_INPUTS else FEW_DOF if n_rows < FEW_ROWS else None,
        validation_fraction=0.1,
        calibrate=True,
        hyperprior=n_rows < ROWS_FOR_PRIOR,
        state_dim=state_dim,
        posterior="rotated",
    )


def for_logits(training: TrainingSpec) -> TrainingSpec:
    """Logits are far larger than standardised targets, and smoother: the prior of the output starts as wide."""
    lengthscale = LENGTHSCALE_FACTOR * training.output_lengthscale
    return dataclasses.replace(training, output_variance=LOGIT_VARIANCE, output_lengthscale=lengthscale)


def paper_class_preset(n_rows: int, n_inputs: int, state_dim: int | None = None) -> TrainingSpec:
    """`paper_preset` for labels."""
    return for_logits(paper_preset(n_rows, n_inputs, state_dim))


def fast_class_preset(n_rows: int, n_inputs: int, state_dim: int | None = None) -> TrainingSpec:
    """`fast_preset` for labels: three tenths of its iterations, at least 200, at its highest rate for all N.

    No warm start: natural gradients bring q of the output to its place within the first steps (docs/decisions.md).
    """
    training = fast_preset(n_rows, n_inputs, n_inputs if state_dim is None else state_dim)
    max_iter = max(200, 3 * training.max_iter // 10)
    return dataclasses.replace(
        for_logits(training),
        max_iter=max_iter,
        kl_warmup=max_iter // 2,
        warm_iter=0,
        learning_rate=0.02,
        decay=0.5,
        path_average="log",
        n_train_samples=1,
        dof=None,
        # A label says less than a number: a tenth of a few hundred of them does not tell a flow from a sparse GP.
        validation_fraction=training.validation_fraction if n_rows >= FEW_ROWS else 0.0,
        calibrate=False,
        hyperprior=False,
        state_dim=state_dim,
    )


PRESETS = {"fast": fast_preset, "paper": paper_preset}
CLASS_PRESETS = {"fast": fast_class_preset, "paper": paper_class_preset}
