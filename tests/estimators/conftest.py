"""Estimators are tested as users meet them: outside the library's numerical context, with JAX as it comes."""

import numpy as np
import pytest
from small import SMALL, SMALL_CLASSES, SMALL_GP

import wishflow as wf
from wishflow.numerics import devices as runtime


def pytest_configure(config):
    if config.getoption("markexpr", "") == "not slow":
        # The quick tests run each program a few times: without optimised machine code it compiles three times sooner.
        runtime.QUICK_OPTIONS["xla_backend_optimization_level"] = 0


@pytest.fixture(autouse=True)
def _library_context():
    """Takes the place of the fixture of this name for all other tests, which turns 64-bit types on."""
    yield


@pytest.fixture(scope="session")
def X():
    return np.random.default_rng(0).normal(size=(30, 2)) * [1.0, 20.0] + [0.0, 300.0]


@pytest.fixture(scope="session")
def y(X):
    noise = np.random.default_rng(1).normal(size=len(X))
    return 50.0 + 5.0 * np.sin(X[:, 0]) + 0.1 * (X[:, 1] - 300.0) + 0.5 * noise


@pytest.fixture(scope="session")
def Y(X, y):
    """Two targets of different size."""
    return np.column_stack([y, 1e-3 * (X[:, 1] - 300.0) + 1e-2 * np.random.default_rng(2).normal(size=len(X))])


@pytest.fixture(scope="session")
def labels(y):
    return np.array(["high", "low"])[(y < np.median(y)).astype(int)]


@pytest.fixture(scope="session")
def gp(X, y):
    return wf.SparseGPRegressor(**SMALL_GP).fit(X, y)


@pytest.fixture(scope="session")
def flow(X, y):
    return wf.FlowRegressor(**SMALL).fit(X, y)


@pytest.fixture(scope="session")
def flow_of_two(X, Y):
    return wf.FlowRegressor(**SMALL).fit(X, Y)


@pytest.fixture(scope="session")
def classifier(X, labels):
    return wf.FlowClassifier(**SMALL_CLASSES).fit(X, labels)
