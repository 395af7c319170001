"""What is trained: a model, how, and scaled data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool

from ..errors import OptionError
from ..likelihoods import Gaussian
from ..numerics.padding import size_class
from ..training.specs import TrainingSpec
from ..training.validation import held_back
from ..wishart.specs import NoDiffusion
from .exact import EXACT_ROWS, FEWEST, automatic_inducing
from .specs import FlowSpec, SparseGPSpec
from .streams import RowStream

# Inducing points that are this part of the distinct rows are all of them: members have as many as the smallest member.
NEARLY_ALL = 0.9


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model to train on scaled data; a state may be wider than the inputs, which are its first `n_inputs` columns
    (None: all). `n_paths` are the sample paths of a prediction. Batches are split over the devices of `mesh` (None: one
    device), which leaves the result as it is.
    Rows that do not fit into memory come from `stream`; X and y are then a sample, of the rows with numbers `index`.
    Rows with equal numbers in `groups` stay on one side of each split (None: each row is a group of its own).
    `n_inducing` is None for the rule of `most_inducing`; `gp_inducing` are the inducing points of the sparse GP alone
    (None: as `n_inducing`).
    """

    spec: SparseGPSpec | FlowSpec
    training: TrainingSpec
    X: np.ndarray
    y: np.ndarray
    n_inducing: int | None
    seed: int
    learning_rate: Callable | None = None
    n_inputs: int | None = None
    n_paths: int = 100
    mesh: Mesh | None = None
    stream: RowStream | None = None
    index: np.ndarray | None = None
    groups: np.ndarray | None = None
    gp_inducing: int | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows, also of those that are not in memory."""
        return len(self.X) if self.stream is None else self.stream.n_rows

    @property
    def is_validated(self) -> bool:
        """Whether rows are held back from training: those of flows whose training says so."""
        return isinstance(self.spec, FlowSpec) and self.training.validation_fraction > 0.0

    def held_back(self) -> Bool[np.ndarray, " N"]:
        """Which of the rows in memory are held back from a flow."""
        return held_back(len(self.X), self.training.validation_fraction, self.seed, self.groups)

    @property
    def most_inducing(self) -> int:
        """The most inducing points: by default more than `FEWEST` for a sparse GP whose q is maximised out alone, since
        other steps take longer with each of them.
        """
        if self.n_inducing is not None:
            return self.n_inducing
        has_more = isinstance(self.spec, SparseGPSpec) and is_collapsed(self)
        return automatic_inducing(self.n_rows) if has_more else FEWEST

    def rows(self, keep: Bool[np.ndarray, " N"]) -> Problem:
        """The problem with some of its rows; a stream is without the others."""
        groups = None if self.groups is None else self.groups[keep]
        some = dataclasses.replace(self, X=self.X[keep], y=self.y[keep], groups=groups)
        if self.stream is None or self.index is None:
            return some
        stream = self.stream.without(self.index[~keep])
        return dataclasses.replace(some, stream=stream, index=self.index[keep])

    def without_noise(self) -> Problem:
        """A flow that is an ordinary differential equation."""
        assert isinstance(self.spec, FlowSpec)
        spec = dataclasses.replace(self.spec, diffusion=NoDiffusion(), drift_posterior="point")
        return dataclasses.replace(self, spec=spec)

    def without_flow(self) -> Problem:
        """The sparse GP alone, of the inputs alone."""
        spec = SparseGPSpec(self.spec.kernel, self.spec.likelihood)
        stream = None if self.stream is None else self.stream.narrowed(self.n_inputs)
        X, training = self.X[:, : self.n_inputs], self.training.without_flow()
        M = self.n_inducing if self.gp_inducing is None else self.gp_inducing
        return dataclasses.replace(
            self, spec=spec, training=training, X=X, stream=stream, n_inducing=M, gp_inducing=None
        )


def equally_large(problems: Sequence[Problem]) -> list[Problem]:
    """Problems with as many inducing points as the one with the fewest distinct rows can have, so that they have one
    shape.
    """
    fewest = size_class(min(len(np.unique(p.X, axis=0)) for p in problems))
    n_inducing = min(fewest, *(p.most_inducing for p in problems))
    gp_inducing = min(fewest, *(p.without_flow().most_inducing for p in problems))
    return [dataclasses.replace(p, n_inducing=n_inducing, gp_inducing=gp_inducing) for p in problems]


def placed(problem: Problem, mesh: Mesh | None) -> Problem:
    """The problem with its rows over the devices of a mesh."""
    stream = problem.stream
    if stream is None or mesh is None:
        return dataclasses.replace(problem, mesh=mesh)
    if stream.n_parts % mesh.size:
        raise OptionError(
            f"{mesh.size} devices given for n_parts={stream.n_parts}; expected a number of devices that divides it: "
            "pass n_parts as a multiple of it."
        )
    return dataclasses.replace(problem, mesh=mesh, stream=stream.on(mesh))


def is_collapsed(problem: Problem) -> bool:
    """Whether the output is trained by L-BFGS: q can be maximised out, and the rows are in memory and few enough."""
    training, is_small = problem.training, problem.n_rows <= problem.training.collapsed_limit
    return training.collapsed and is_small and problem.stream is None and isinstance(problem.spec.likelihood, Gaussian)


def is_exact(problem: Problem) -> bool:
    """Whether the inducing points are the rows, as good as all of them, so that an exact GP takes no longer."""
    if not is_collapsed(problem) or problem.n_rows > EXACT_ROWS:
        return False
    return problem.most_inducing >= NEARLY_ALL * len(np.unique(problem.X, axis=0))
