"""Every case is fitted once for all tests that only read it."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import wishflow as wf

from .build import CASES


@pytest.fixture(autouse=True)
def _library_context():
    """Takes the place of the fixture of this name for other tests: here the library is used as its users use it."""
    yield


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted model, which tests leave as it is, and the rows that it was fitted to."""

    name: str
    model: Any
    X: Any
    y: Any

    @property
    def has_classes(self) -> bool:
        return hasattr(self.model, "classes_")

    @property
    def has_counts(self) -> bool:
        return self.name == "counts"

    def copy(self, **options: Any) -> Any:
        """A model of the same numbers that a test may change."""
        return pickle.loads(pickle.dumps(self.model)).set_params(**options)

    def rows(self, *which: int) -> tuple[Any, Any]:
        """Some rows of the data, by number."""
        index = list(which)
        return tuple(part.iloc[index] if hasattr(part, "iloc") else part[index] for part in (self.X, self.y))


def numbers(model: Any, X: Any, y: Any) -> dict[str, np.ndarray]:
    """All that a model predicts for some rows, by name; every array has one entry for each row."""
    if hasattr(model, "classes_"):
        found = {"proba": model.predict_proba(X), "class": model.predict(X)}
    else:
        mean, sd = model.predict(X, return_std=True)
        means, variances = (np.moveaxis(part, 0, -1) for part in model.predict_components(X))
        quantiles = model.predict_quantiles(X, [0.05, 0.5, 0.95])
        found = {"mean": mean, "sd": sd, "quantiles": quantiles, "means": means, "variances": variances}
    return found | {"log_prob": model.log_prob(X, y), "log": model.log_prob(X, y, average="log")}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], rtol: float = 0.0) -> None:
    """The same numbers: bit by bit, or up to a relative error."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        if rtol == 0.0 or values.dtype.kind not in "fc":
            np.testing.assert_array_equal(values, other[name], err_msg=name)
        else:
            np.testing.assert_allclose(values, other[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.fixture(scope="session")
def fitted() -> Callable[[str], Fitted]:
    """The fitted model of a case, by name."""
    models: dict[str, Fitted] = {}

    def find(name: str) -> Fitted:
        if name not in models:
            estimator, X, y = CASES[name]()
            models[name] = Fitted(name, estimator.fit(X, y), X, y)
        return models[name]

    return find


@pytest.fixture
def case(name: str, fitted: Callable[[str], Fitted]) -> Fitted:
    """The fitted model of the case that a test is parametrised by."""
    return fitted(name)


class Stop(wf.callbacks.Callback):
    """Raises an error when training reports for the given time."""

    def __init__(self, error: BaseException, report: int = 1) -> None:
        self.error, self.n_left = error, report

    def on_chunk(self, event: Any) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            raise self.error


class Count(wf.callbacks.Callback):
    """Counts the reports of training."""

    n = 0

    def on_chunk(self, event: Any) -> None:
        self.n += 1
