"""Checks of options, and the words of their errors."""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..errors import OptionError


def positive_int(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise OptionError(f"{name}={value!r} given; expected a whole number of at least 1.")
    return int(value)


def positive_int_or_auto(name: str, value: Any) -> int | None:
    """A whole number of at least 1, or None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    if isinstance(value, str):
        raise OptionError(f"{name}={value!r} given; expected 'auto' or a whole number of at least 1.")
    return positive_int(name, value)


def whole_number(name: str, value: Any, least: int, most: int) -> int:
    """A whole number between two others."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or not least <= int(value) <= most:
        raise OptionError(f"{name}={value!r} given; expected a whole number from {least} to {most}.")
    return int(value)


def state_dim(value: Any, n_inputs: int) -> int:
    """The dimensions of a flow's state: the inputs, and as many more as are wanted."""
    width = positive_int("state_dim", value)
    if width < n_inputs:
        raise OptionError(
            f"state_dim={width} with {n_inputs} inputs; the state contains all inputs: expected at least {n_inputs}."
        )
    return width


def lags(value: Any) -> int | tuple[int, ...]:
    """A number p for the lags 1, …, p, or increasing lags that begin with 1; 1, …, p themselves become p."""
    if not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= 1:
        return int(value)
    is_sequence = isinstance(value, Iterable) and not isinstance(value, str | bytes | dict | set)
    is_sequence = is_sequence and getattr(value, "ndim", 1) == 1
    found = list(value) if is_sequence else []
    wrong = _wrong_lag(found) if found else ""
    if not found or wrong:
        raise OptionError(
            f"lags={value!r} given{wrong}; expected a whole number p of at least 1, for the lags 1 to p, or increasing "
            "whole numbers that begin with 1, such as (1, 2, 3, 24)."
        )
    chosen = tuple(int(lag) for lag in found)
    return len(chosen) if chosen[-1] == len(chosen) else chosen


def _wrong_lag(found: list[Any]) -> str:
    for lag in found:
        if isinstance(lag, bool) or not isinstance(lag, numbers.Integral) or lag < 1:
            return f": {lag!r} is no lag"
    for before, lag in itertools.pairwise(found):
        if lag <= before:
            return f": {lag} is there twice" if lag == before else f": {lag} comes after {before}"
    return "" if found[0] == 1 else ": a step leaves from the row before it, which is lag 1"


def rank_or_none(value: Any) -> int | None:
    """The rank of a Wishart diffusion; None for full rank."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise OptionError(f"rank={value!r} given; expected a whole number of at least 1, or None for full rank.")
    return int(value)


def positive_rate(name: str, value: Any) -> float:
    """A learning rate that is a number."""
    if not _is_number(value) or value <= 0:
        raise OptionError(
            f"{name}={value!r} given; expected a positive number, an optax schedule, or None for the preset's."
        )
    return float(value)


def positive_number(name: str, value: Any) -> float:
    """A finite number above 0."""
    if not _is_number(value) or value <= 0:
        raise OptionError(f"{name}={value!r} given; expected a finite number above 0.")
    return float(value)


def tolerance(value: Any) -> float:
    """The rise of the objective below which training is over; 0 trains to the last iteration."""
    if not _is_number(value) or value < 0:
        raise OptionError(f"tol={value!r} given; expected a finite number of at least 0, or None for the preset's.")
    return float(value)


def fraction(name: str, value: Any) -> float:
    """A share of the rows: at least 0, below 1."""
    if not _is_number(value) or not 0.0 <= value < 1.0:
        raise OptionError(
            f"{name}={value!r} given; expected a number from 0 (none) to below 1, or None for the preset's."
        )
    return float(value)


def flow_time(value: Any) -> float:
    """The length of the flow; 0 leaves the inputs where they are."""
    if not _is_number(value) or value < 0:
        raise OptionError(f"flow_time={value!r} given; expected a finite number of at least 0.")
    return float(value)


def share_or_none(name: str, value: Any) -> float | None:
    """A number of at least 0; None for no limit."""
    if value is None:
        return None
    if not _is_number(value) or value < 0:
        raise OptionError(f"{name}={value!r} given; expected a number of at least 0, or None for no limit.")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them: bool("no") is True."""
    if not isinstance(value, bool | np.bool_):
        raise OptionError(f"{name}={value!r} given; expected True or False.")
    return bool(value)


def verbosity(value: Any) -> int:
    """0 is silent, 1 shows a progress bar."""
    if not isinstance(value, numbers.Integral | np.bool_) or value < 0:
        raise OptionError(f"verbose={value!r} given; expected 0 for silence or 1 for a progress bar.")
    return int(value)


def fixed_seed(value: Any) -> int:
    """The seed of initialisation, training and prediction. `random_state=None` means 0: a fit can be repeated."""
    return 0 if value is None else any_seed(value)


def any_seed(value: Any) -> int:
    """A seed from a whole number as it is, from a generator by a draw, from None by a draw of NumPy's own generator."""
    if not isinstance(value, bool) and isinstance(value, numbers.Integral) and 0 <= int(value) < 2**32:
        return int(value)
    if value is not None and not isinstance(value, np.random.RandomState):
        raise OptionError(
            f"random_state={value!r} given; expected a whole number from 0 to 2**32 - 1, a numpy RandomState, or None."
        )
    return int(check_random_state(value).randint(2**31 - 1))


def levels(name: str, values: Any) -> np.ndarray:
    """Probabilities strictly between 0 and 1, one or several."""
    try:
        found = np.atleast_1d(np.asarray(values, float))
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    if found.ndim != 1 or not found.size or not ((found > 0) & (found < 1)).all():
        raise OptionError(f"{name}={values!r} given; expected probabilities strictly between 0 and 1.")
    return found


def level(name: str, value: Any, otherwise: str) -> float:
    """One probability strictly between 0 and 1; `otherwise` says what to do with several."""
    found = levels(name, value)
    if found.size > 1:
        raise OptionError(f"{name}={value!r} given; expected one number: {otherwise}.")
    return float(found[0])


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond a double
        return False
