"""How many floating-point operations a work needs, by formula.

Only matrix products between rows and the M inducing points count; they are all but a few percent of the work. A
product of (n, k) with (k, m) costs 2nkm forward, and twice that again for its two derivatives: 6nkm in a training step,
2nkm in a forecast. For each row and each evaluation of a field with R posteriors:

    k(X, Z)            D·M         squared distances by one product
    a = Lz⁻¹ k(Z, x)   M²
    quadratic forms    R·M²        full q; M² + R·M structured; R·M diagonal
    means              (R + D)·M   drift and means of the diffusion

Full q are counted as whole matrices, as all peers multiply them: who uses that they are triangular does less and may
come nearer to the limit than 100 %. A rollout needs the field at T + 1 states of each path: the field at the end of a
tick is the field at the beginning of the next.
"""

from __future__ import annotations

from .works import Work


def products_of_gp(n_inputs: int, n_inducing: int, n_posteriors: int, n_drifts: int, form: str = "full") -> int:
    """Multiplications for one row at one state."""
    M = n_inducing
    diagonal = n_posteriors * M
    quadratics = {
        "full": n_posteriors * M**2,
        "structured": M**2 + diagonal,
        "rotated": diagonal,
        "diagonal": diagonal,
    }
    return n_inputs * M + M**2 + quadratics[form] + (n_posteriors + n_drifts) * M


def n_evaluations(work: Work) -> int:
    """At how many states the field is needed, over all rows, steps and samples."""
    by_row = {"svgp": 0, "flow": work.n_steps, "rollout": work.n_steps + 1, "transition": 1, "forecast": work.n_steps}
    return work.rows * work.n_samples * by_row[work.kind]


def operations(work: Work, form: str = "full") -> float:
    """Floating-point operations of one step (or one forecast)."""
    n_drifts = work.dim if work.diffusion == "wishart" else 0  # diffGP: the drift is the mean of its posterior
    products = 0
    if work.kind != "svgp":
        by_state = products_of_gp(work.dim, work.n_inducing, work.n_posteriors, n_drifts, form)
        products += n_evaluations(work) * by_state
    if work.kind in ("svgp", "flow"):
        products += work.rows * work.n_samples * products_of_gp(work.dim, work.n_inducing, 1, 0)
    return (2.0 if work.kind == "forecast" else 6.0) * products
