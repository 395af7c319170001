"""Names of the forms a posterior's covariance can have."""

from __future__ import annotations

from ..errors import unknown_option

# --- diffusions ------------------------------------------------------------------------------


POSTERIORS = ("full", "structured", "rotated", "diagonal")


def check_posterior(name: str) -> None:
    if name not in POSTERIORS:
        raise unknown_option("posterior", name, POSTERIORS)
