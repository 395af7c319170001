"""Sparse Gaussian processes: inducing points Z, the whitened posterior q(v), marginals, KL and pathwise draws.

Notation: Lz = chol(k(Z, Z) + jitter), u = Lz v, q(v_p) = N(m_p, R_p R_pᵀ), a(x) = Lz⁻¹ k(Z, x).
The basis (kernel and Z) is apart from the posterior, so that drift and diffusion of one field share a(x).
"""

from .basis import InducingBasis as InducingBasis
from .basis import PreparedBasis as PreparedBasis
from .basis import kernel_matrix_on_host as kernel_matrix_on_host
from .factorised import factorised as factorised
from .factorised import rotations as rotations
from .joined import JoinedPosterior as JoinedPosterior
from .joined import joined_moments as joined_moments
from .pathwise import PathwiseDraw as PathwiseDraw
from .pathwise import draw_jointly as draw_jointly
from .pathwise import draw_pathwise as draw_pathwise
from .posteriors import POSTERIORS as POSTERIORS
from .posteriors import AbstractPosterior as AbstractPosterior
from .posteriors import DiagonalPosterior as DiagonalPosterior
from .posteriors import PreparedPosterior as PreparedPosterior
from .posteriors import RotatedPosterior as RotatedPosterior
from .posteriors import StructuredPosterior as StructuredPosterior
from .posteriors import WhitenedPosterior as WhitenedPosterior
from .posteriors import for_prediction as for_prediction
from .posteriors import rotated as rotated
from .sparse_gp import ConditionedGP as ConditionedGP
from .sparse_gp import SparseGP as SparseGP
from .sparse_gp import single_marginals as single_marginals
