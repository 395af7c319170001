"""Write the model files and numbers that `test_reference` compares with.

    python -m tests.reference.make

They were written by version 0.1.0, before modules were moved. Writing them anew is for cases that are added: existing
files are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import cases, numbers

FOLDER = Path(__file__).parent / "v0.1.0"


def predicted(name: str, estimator: Any) -> dict[str, np.ndarray]:
    """Predictions of a case by a fitted estimator."""
    if name in cases.REGRESSION:
        return numbers.predictions(estimator, *cases.REGRESSION[name][1])
    return numbers.forecasts(estimator, cases.FORECASTING[name][1])


def trained(name: str, estimator: Any) -> dict[str, np.ndarray]:
    """Objectives, gradients and steps of a case from a fitted estimator."""
    if name in cases.REGRESSION:
        return numbers.of_regression(estimator, *cases.REGRESSION[name][1])
    return numbers.of_forecasting(estimator)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (estimator, data) in {**cases.REGRESSION, **cases.FORECASTING}.items():
        if not (FOLDER / f"{name}.npz").exists():
            estimator.fit(*data) if name in cases.REGRESSION else estimator.fit(data)
            estimator.save(FOLDER / f"{name}.safetensors")
            np.savez_compressed(FOLDER / f"{name}.npz", **predicted(name, estimator), **trained(name, estimator))
            print(name, flush=True)


if __name__ == "__main__":
    main()
