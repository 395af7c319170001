"""Transforms of the targets, column by column, with the Jacobian that `log_prob` needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError, OptionError, unknown_option


@dataclasses.dataclass(frozen=True)
class Transform:
    """z = forward(y); `slope` is dz/dy at y; `lowest` the smallest y it takes, which inverses never go below."""

    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    lowest: float = -np.inf


TRANSFORMS = {
    "none": Transform(lambda y: y, lambda z: z, np.ones_like),
    "log1p": Transform(np.log1p, np.expm1, lambda y: 1.0 / (1.0 + y), 0.0),
    "log": Transform(np.log, np.exp, lambda y: 1.0 / y, np.finfo(float).tiny),
    "sqrt": Transform(np.sqrt, lambda z: np.maximum(z, 0.0) ** 2, lambda y: 0.5 / np.sqrt(np.maximum(y, 1e-300)), 0.0),
    "asinh": Transform(np.arcsinh, np.sinh, lambda y: 1.0 / np.sqrt(1.0 + y**2)),
}


EXPONENTIAL = ("log1p", "log", "asinh")


def _of_object(transformer: Any) -> Transform:
    """A transformer of scikit-learn's kind, one column at a time; its slope by central differences."""

    def forward(y: np.ndarray) -> np.ndarray:
        return np.asarray(transformer.transform(y.reshape(-1, 1)), float).reshape(y.shape)

    def inverse(z: np.ndarray) -> np.ndarray:
        return np.asarray(transformer.inverse_transform(z.reshape(-1, 1)), float).reshape(z.shape)

    def slope(y: np.ndarray) -> np.ndarray:
        step = 1e-5 * (1.0 + np.abs(y))
        return (forward(y + step) - forward(y - step)) / (2.0 * step)

    return Transform(forward, inverse, slope)


def _one(choice: Any) -> Transform:
    if choice is None:
        return TRANSFORMS["none"]
    if isinstance(choice, str):
        if choice not in TRANSFORMS:
            raise unknown_option("transform", choice, list(TRANSFORMS))
        return TRANSFORMS[choice]
    if hasattr(choice, "transform") and hasattr(choice, "inverse_transform"):
        return _of_object(choice)
    raise OptionError(
        f"transform={choice!r} is a {type(choice).__name__}; expected a name of {list(TRANSFORMS)}, a transformer with "
        "transform and inverse_transform, or a dict of them by column."
    )


@dataclasses.dataclass(frozen=True)
class ColumnTransforms:
    """One transform for each column, kept as it was chosen (a name, an object or None), so that it can be pickled."""

    choices: tuple[Any, ...]

    def __post_init__(self) -> None:
        _ = self.parts  # names what is unknown

    @property
    def grow_exponentially(self) -> bool:
        """Whether the inverse of one of them is an exponential."""
        return any(isinstance(choice, str) and choice in EXPONENTIAL for choice in self.choices)

    @property
    def parts(self) -> tuple[Transform, ...]:
        return tuple(_one(choice) for choice in self.choices)

    @classmethod
    def of(cls, choice: Any, columns: pd.Index) -> ColumnTransforms:
        if not isinstance(choice, dict):
            return cls((choice,) * len(columns))
        unknown = [name for name in choice if name not in columns]
        if unknown:
            raise OptionError(f"transform names {unknown[0]!r}, which is no column; the columns are {list(columns)}.")
        return cls(tuple(choice.get(name) for name in columns))

    def _each(self, method: str, values: np.ndarray) -> np.ndarray:
        columns = [getattr(part, method)(values[..., d]) for d, part in enumerate(self.parts)]
        return np.stack(columns, axis=-1)

    def forward(self, values: np.ndarray, names: pd.Index) -> np.ndarray:
        for d, part in enumerate(self.parts):
            low = np.nanmin(values[..., d], initial=np.inf)
            if low < part.lowest:
                raise DataError(
                    f"the series {names[d]!r} holds {low:g}, below the {part.lowest:g} its transform takes."
                )
        return self._each("forward", values)

    def inverse(self, values: np.ndarray) -> np.ndarray:
        lowest = np.array([part.lowest for part in self.parts])
        return np.maximum(self._each("inverse", values), lowest)

    def slope(self, values: np.ndarray) -> np.ndarray:
        """dz/dy at values in the units of y."""
        return self._each("slope", values)
