"""Write the numbers that `test_regression` compares with: means, standard deviations and log densities of three rows.

    python -m tests.contract.frozen

They change only with a reason, which the changelog gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")
ROWS = [0, 7, 42]


def described(model: Any, X: Any, y: Any) -> dict[str, Any]:
    """A few predictions of a model for three rows of its data, as lists."""
    X, y = (part.iloc[ROWS] if hasattr(part, "iloc") else part[ROWS] for part in (X, y))
    if hasattr(model, "classes_"):
        found = {"proba": model.predict_proba(X)}
    else:
        found = dict(zip(("mean", "sd"), model.predict(X, return_std=True), strict=True))
    return {name: np.asarray(values).tolist() for name, values in {**found, "log_prob": model.log_prob(X, y)}.items()}


def main() -> None:
    from .build import CASES

    cases = {name: make() for name, make in CASES.items()}
    numbers = {name: described(estimator.fit(X, y), X, y) for name, (estimator, X, y) in cases.items()}
    FILE.write_text(json.dumps(numbers, indent=1) + "\n")


if __name__ == "__main__":
    main()
