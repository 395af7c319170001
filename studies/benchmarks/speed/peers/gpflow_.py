"""GPflow: its `SVGP`, the step in one `tf.function`, with and without XLA: which is faster depends on the machine.

python -m studies.benchmarks.speed.peers.gpflow_ graph     # a worker; or "xla"
"""

from __future__ import annotations

import functools
import itertools
import sys
from pathlib import Path

import gpflow
import tensorflow as tf

from .. import problem
from ..worker import Prepared, serve
from ..works import LEARNING_RATE, Work

THREADS = 2


def build(work: Work) -> gpflow.models.SVGP:
    start = problem.output_start(work)
    kernel = gpflow.kernels.SquaredExponential(variance=start.variance, lengthscales=start.lengthscale)
    return gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.Gaussian(problem.NOISE_VARIANCE),
        gpflow.inducing_variables.InducingPoints(start.Z.astype(work.dtype)),
        q_mu=start.mean.T.astype(work.dtype),
        q_sqrt=start.sqrt.astype(work.dtype),
        whiten=True,
        num_data=problem.n_data(work),
    )


def prepare(work: Work, noise: Path | None, is_xla: bool = False) -> Prepared:
    del noise  # the bound has none
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    gpflow.config.set_default_float(getattr(tf, work.dtype))
    gpflow.config.set_default_jitter(problem.JITTER)
    model = build(work)
    data = [tuple(tf.constant(b[name], model.q_mu.dtype) for name in ("X", "y")) for b in problem.batches(work)]
    adam = tf.optimizers.Adam(LEARNING_RATE)
    adam.build(model.trainable_variables)
    turns = itertools.cycle(data)

    @tf.function(jit_compile=is_xla)
    def step(X, y):
        with tf.GradientTape() as tape:
            loss = model.training_loss((X, y))
        gradients = tape.gradient(loss, model.trainable_variables)
        adam.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def run(n: int) -> None:
        for _ in range(n):
            loss = step(*next(turns))
        loss.numpy()

    def value() -> float:
        return float(model.training_loss(data[0]))

    return Prepared(run, value)


if __name__ == "__main__":
    serve(functools.partial(prepare, is_xla=sys.argv[1] == "xla"), ("gpflow", "tensorflow", "numpy"))
