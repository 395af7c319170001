"""Sparse Gaussian processes: inducing points Z, the whitened posterior q(v), marginals, KL and pathwise draws.

Notation: Lz = chol(k(Z, Z) + jitter), u = Lz v, q(v_p) = N(m_p, R_p R_pᵀ), a(x) = Lz⁻¹ k(Z, x).
The basis (kernel and Z) is apart from the posterior, so that drift and diffusion of one field share a(x).
"""

from .basis import InducingBasis, PreparedBasis, kernel_matrix_on_host
from .factorised import factorised, rotations
from .joined import JoinedPosterior, joined_moments
from .pathwise import PathwiseDraw, draw_jointly, draw_pathwise
from .posteriors import (
    POSTERIORS,
    AbstractPosterior,
    DiagonalPosterior,
    PreparedPosterior,
    RotatedPosterior,
    StructuredPosterior,
    WhitenedPosterior,
    for_prediction,
    rotated,
)
from .sparse_gp import ConditionedGP, SparseGP, single_marginals
