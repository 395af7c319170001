"""Transforms of the targets, column by column: one-to-one maps of an interval onto the whole line, with their slopes.

Draws and log densities of a forecast are of one law. Draws of a model are mapped back as they are, so that they have
the density of the model times the slope dz/dy:

- none, "asinh": on the whole line;
- "log": above 0;
- "log1p": above −1, so that some draws of a series with many zeros lie between −1 and 0;
- "scaled_log1p": log(1 + y/c) with a unit c of the column (`log_units`), above −c: the same in any unit of y;
- "sqrt": on the whole line; near zero and below the root goes on as its tangent (`square_root`);
- a transformer: where its inverse leads, with slopes by differences.

None of these laws has a point mass, and transforms cut nothing. With `limits`, and only then, a step of a path that
would cross a limit ends there: each column has a probability to be at its low and at its high limit, a density (that of
the step, unchanged) between them, and nothing beyond. `Forecast.log_prob` knows these masses
(`series.running.censored`): columns at a limit count with a probability, which has no slope, the others with a density.
Data are no paths: `WishartForecaster.log_prob` is of steps without limits, whatever the option says.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ...errors import DataError, OptionError, unknown_option
from .slopes import numeric_slope, where_defined

# Below this share of a typical value of its column the square root goes on as a straight line. There z is a twentieth
# of that of a typical value, and its slope ten times as high: values near zero keep most of their distances, and a draw
# that goes as far below zero in z as a tenth of a typical z is at −3 % of a typical y.
KNOT = 0.01
# The unit of the scaled logarithm of a column with zeros: the value that this part of the others lies below, of counts
# one. Steps from zero to the smallest values are then as long as others.
LOW = 0.05
# Of files that know no typical values: a straight line so short that draws behind it are zero but for rounding.
NO_KNOT = 1e-12
# The whole line, as far as numbers reach: exponentials of draws are positive and finite.
SMALLEST, LARGEST = np.log(np.finfo(float).tiny), np.log(np.finfo(float).max)
# How far around the training data, in standard deviations, a transformer's inverse should recover values.
FAR = 4.0


@dataclasses.dataclass(frozen=True)
class Transform:
    """z = forward(y) for y above `bound`, all real z; `slope` is dz/dy at y.

    `takes` says in words which data it takes, `is_data` whether a value is of that kind: zero is the lowest rain there
    is, whatever draws may be.
    """

    forward: Callable[[np.ndarray], np.ndarray]
    inverse: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    bound: float = -np.inf
    is_data: Callable[[np.ndarray], np.ndarray] = lambda y: np.ones(y.shape, bool)
    takes: str = "any value"


TRANSFORMS = {
    "none": Transform(lambda y: y, lambda z: z, np.ones_like),
    "log1p": Transform(
        np.log1p,
        # −1 itself is no value: there the density is without bound.
        lambda z: np.maximum(np.expm1(np.minimum(z, LARGEST)), np.nextafter(-1.0, 0.0)),
        lambda y: 1.0 / (1.0 + y),
        bound=-1.0,
        is_data=lambda y: y >= 0.0,
        takes="values of at least 0",
    ),
    "log": Transform(
        np.log,
        lambda z: np.exp(np.clip(z, SMALLEST, LARGEST)),
        lambda y: 1.0 / y,
        bound=0.0,
        is_data=lambda y: y > 0.0,
        takes="values above 0",
    ),
    "asinh": Transform(np.arcsinh, lambda z: np.sinh(np.clip(z, -LARGEST, LARGEST)), lambda y: 1.0 / np.hypot(1.0, y)),
}
SCALED_LOG = "scaled_log1p"
NAMES = ("none", "log1p", SCALED_LOG, "log", "sqrt", "asinh")
EXPONENTIAL = ("log1p", SCALED_LOG, "log", "asinh")


def square_root(knot: float) -> Transform:
    """z = √y above the knot c, and its tangent √c + (y − c)/(2√c) below: slopes stay below 1/(2√c).

    The root alone has no inverse for z < 0, and at y = 0 its slope has no bound, nor has a density with it.
    """
    root = np.sqrt(knot)

    def forward(y: np.ndarray) -> np.ndarray:
        return np.where(y < knot, root + (y - knot) / (2.0 * root), np.sqrt(np.maximum(y, knot)))

    def inverse(z: np.ndarray) -> np.ndarray:
        return np.where(z < root, knot + 2.0 * root * (z - root), np.maximum(z, root) ** 2)

    def slope(y: np.ndarray) -> np.ndarray:
        return 0.5 / np.sqrt(np.maximum(y, knot))

    return Transform(forward, inverse, slope, is_data=lambda y: y >= 0.0, takes="values of at least 0")


def scaled_log1p(unit: float) -> Transform:
    """z = log(1 + y/c) for a unit c."""
    log1p, largest = TRANSFORMS["log1p"], LARGEST - max(np.log(unit), 0.0)
    return Transform(
        lambda y: np.log1p(y / unit),
        lambda z: np.maximum(np.expm1(np.minimum(z, largest)) * unit, np.nextafter(-unit, 0.0)),
        lambda y: 1.0 / (unit + y),
        bound=-unit,
        is_data=log1p.is_data,
        takes=log1p.takes,
    )


def of_object(transformer: Any, scale: float) -> Transform:
    """A transformer of scikit-learn's kind, one column at a time; its slope by differences (`numeric_slope`)."""

    def forward(y: np.ndarray) -> np.ndarray:
        return np.asarray(transformer.transform(y.reshape(-1, 1)), float).reshape(y.shape)

    def inverse(z: np.ndarray) -> np.ndarray:
        return np.asarray(transformer.inverse_transform(z.reshape(-1, 1)), float).reshape(z.shape)

    return Transform(forward, inverse, lambda y: numeric_slope(forward, y, scale))


def _one(choice: Any, scale: float | None) -> Transform:
    if choice is None:
        return TRANSFORMS["none"]
    if isinstance(choice, str):
        if choice not in NAMES:
            raise unknown_option("transform", choice, list(NAMES))
        if choice == "sqrt":
            return square_root(NO_KNOT if scale is None else KNOT * scale)
        if choice == SCALED_LOG:
            return scaled_log1p(1.0 if scale is None else scale)
        return TRANSFORMS[choice]
    if hasattr(choice, "transform") and hasattr(choice, "inverse_transform"):
        return of_object(choice, 1.0 if scale is None else scale)
    raise OptionError(
        f"transform={choice!r} is a {type(choice).__name__}; expected a name of {list(NAMES)}, a transformer with "
        "transform and inverse_transform, or a dict of them by column."
    )


def typical_values(values: np.ndarray) -> tuple[float, ...]:
    """The median of |y| over the entries of each column that are not zero."""
    sizes = np.abs(values)
    found = [column[column > 0.0] for column in sizes.T]
    return tuple(float(np.median(column)) if len(column) else 1.0 for column in found)


def log_units(values: np.ndarray) -> tuple[float, ...]:
    """The unit of the scaled logarithm of each column without negative values: a hundredth of a typical value, so that
    it is as good as a logarithm there, or a low value where there are zeros.
    """
    with np.errstate(invalid="ignore"):
        above = [column[column > 0.0] for column in values.T]
        has_zeros = (values == 0.0).any(axis=0)
    return tuple(
        float(np.quantile(column, LOW) if zeros else KNOT * np.median(column)) if len(column) else 1.0
        for column, zeros in zip(above, has_zeros, strict=True)
    )


def scales_of(transforms: ColumnTransforms, values: np.ndarray) -> tuple[float, ...]:
    """What the transforms need to know of their columns."""
    pairs = zip(transforms.choices, log_units(values), typical_values(values), strict=True)
    return tuple(unit if isinstance(one, str) and one == SCALED_LOG else typical for one, unit, typical in pairs)


@dataclasses.dataclass(frozen=True)
class ColumnTransforms:
    """One transform for each column, kept as it was chosen (a name, an object or None), so that it can be pickled, and
    a typical value of the column in training, or the unit of its scaled logarithm; old files have none.
    """

    choices: tuple[Any, ...]
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _ = self.parts  # names what is unknown

    @property
    def grow_exponentially(self) -> bool:
        """Whether the inverse of one of them is an exponential."""
        return any(isinstance(choice, str) and choice in EXPONENTIAL for choice in self.choices)

    @property
    def parts(self) -> tuple[Transform, ...]:
        scales = self.scales or (None,) * len(self.choices)
        return tuple(_one(choice, scale) for choice, scale in zip(self.choices, scales, strict=True))

    @classmethod
    def of(cls, choice: Any, columns: pd.Index, scales: tuple[float, ...] = ()) -> ColumnTransforms:
        if not isinstance(choice, dict):
            return cls((choice,) * len(columns), scales)
        unknown = [name for name in choice if name not in columns]
        if unknown:
            raise OptionError(f"transform names {unknown[0]!r}, which is no column; the columns are {list(columns)}.")
        return cls(tuple(choice.get(name) for name in columns), scales)

    @classmethod
    def learnt(cls, choice: Any, columns: pd.Index, values: np.ndarray) -> tuple[ColumnTransforms, np.ndarray]:
        """The transforms of training data (checked), and the data behind them."""
        transforms = cls.of(choice, columns)
        transforms = dataclasses.replace(transforms, scales=scales_of(transforms, values))
        transforms.check_data(values, columns)
        z = transforms.forward(values)
        transforms.check_objects(z, columns)
        return transforms, z

    def _each(self, method: str, values: np.ndarray) -> np.ndarray:
        columns = [getattr(part, method)(values[..., d]) for d, part in enumerate(self.parts)]
        return np.stack(columns, axis=-1)

    def check_data(self, values: np.ndarray, names: pd.Index) -> None:
        """Data to learn from or to condition on are of the kind that each transform takes."""
        for d, part in enumerate(self.parts):
            column = values[..., d]
            bad = ~np.isnan(column) & ~part.is_data(column)
            if bad.any():
                choice = self.choices[d]
                raise DataError(
                    f"the series {names[d]!r} holds {column[bad].min():g}; its transform {choice!r} takes "
                    f"{part.takes}. Correct the data, or use transform='asinh' or None for it."
                )

    def is_supported(self, values: np.ndarray) -> np.ndarray:
        """Whether values lie where the transforms are defined; so do those that are missing."""
        bounds = np.array([part.bound for part in self.parts])
        return np.isnan(values) | (values > bounds)

    def check_support(self, values: np.ndarray, names: pd.Index) -> None:
        bad = np.argwhere(~self.is_supported(values))
        if len(bad):
            row, d = bad[0]
            part, choice = self.parts[d], self.choices[d]
            raise DataError(
                f"the series {names[d]!r} holds {values[row, d]:g}; its transform {choice!r} takes values above "
                f"{part.bound:g}."
            )

    def forward(self, values: np.ndarray) -> np.ndarray:
        return self._each("forward", values)

    def inverse(self, values: np.ndarray) -> np.ndarray:
        return self._each("inverse", values)

    def slope(self, values: np.ndarray) -> np.ndarray:
        """dz/dy at values in the units of y."""
        return self._each("slope", values)

    def check_objects(self, z: np.ndarray, names: pd.Index) -> None:
        """Warn of transformers whose inverse does not recover values around the data z (transformed): draws there will
        have no value, or one that `log_prob` does not account for.
        """
        mean, sd = np.nanmean(z, axis=0), np.nanstd(z, axis=0)
        for d, (part, choice) in enumerate(zip(self.parts, self.choices, strict=True)):
            if choice is None or isinstance(choice, str):
                continue
            around = mean[d] + sd[d] * np.linspace(-FAR, FAR, 81)
            with np.errstate(all="ignore"):
                back = where_defined(part.forward, where_defined(part.inverse, around))
            is_back = np.abs(back - around) <= 1e-3 * sd[d]
            if not is_back.all():
                first = around[~is_back][np.abs(around[~is_back] - mean[d]).argmin()]
                warnings.warn(
                    f"the inverse of the transformer of {names[d]!r} ({choice!r}) does not recover the value "
                    f"{first:.3g}, {abs(first - mean[d]) / sd[d]:.1f} standard deviations from the mean of the "
                    "transformed data: draws there have no value, or one that log_prob does not account for. Use one "
                    "that maps onto all numbers ('log', 'asinh', Yeo-Johnson), or keep paths near the data with "
                    "limits=0.",
                    stacklevel=5,
                )
