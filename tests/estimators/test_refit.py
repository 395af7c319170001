"""A fit that fails, or is interrupted, leaves the estimator exactly as it was."""

import numpy as np
import pandas as pd
import pytest
from small import SMALL, SMALL_CLASSES, SMALL_GP

import wishflow as wf
from wishflow.callbacks import Callback
from wishflow.errors import DataError

# Rows enough that the forecaster trains.
TIMES = pd.date_range("2024-01-01", periods=220, freq="h")
SERIES = pd.DataFrame(np.random.default_rng(0).normal(size=(220, 2)).cumsum(axis=0), TIMES, ["a", "b"])


class Interrupt(Callback):
    """Ctrl-C in the middle of the next fit."""

    is_on = False

    def on_chunk(self, event):
        if self.is_on:
            raise KeyboardInterrupt


def same(before, after):
    """The same attributes, and the same objects behind them."""
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)


ESTIMATORS = {
    "gp": lambda c: wf.SparseGPRegressor(callbacks=c, **SMALL_GP),
    "flow": lambda c: wf.FlowRegressor(callbacks=c, **SMALL),
    "validated": lambda c: wf.FlowRegressor(callbacks=c, **{**SMALL, "validation_fraction": 0.1}),
    "members": lambda c: wf.SparseGPRegressor(callbacks=c, n_members=2, **SMALL_GP),
    "classifier": lambda c: wf.FlowClassifier(callbacks=c, **SMALL_CLASSES),
}


@pytest.fixture(params=list(ESTIMATORS))
def fitted(request, X, y, labels):
    interrupt = Interrupt()
    model = ESTIMATORS[request.param]([interrupt])
    target = labels if request.param == "classifier" else y
    return model.fit(X, target), interrupt, target


def test_an_interrupted_refit_changes_nothing(fitted, X):
    model, interrupt, target = fitted
    before, predicted = dict(model.__dict__), model.predict(X)
    interrupt.is_on = True
    other = target if target.dtype.kind == "U" else target * 1000.0 + 5e4
    with pytest.raises(KeyboardInterrupt):
        model.fit(X * 5.0 + 100.0, other)
    same(before, model.__dict__)
    np.testing.assert_array_equal(model.predict(X), predicted)


def test_a_refit_with_bad_data_changes_nothing(fitted, X):
    model, _, target = fitted
    before = dict(model.__dict__)
    wider = np.column_stack([X, X])  # would set n_features_in_
    wider[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(wider, target)
    with pytest.raises(ValueError):
        model.fit(pd.DataFrame({"p": X[:, 0], "q": X[:, 1]}), target[:-1])
    same(before, model.__dict__)


def test_an_estimator_that_was_never_fitted_stays_so(X, y):
    interrupt = Interrupt()
    interrupt.is_on = True
    model = wf.SparseGPRegressor(callbacks=[interrupt], **SMALL_GP)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_many_fits_succeed_together_or_not_at_all(X, y):
    models = [wf.SparseGPRegressor(**SMALL_GP) for _ in range(2)]
    wf.fit_many(models, [(X, y), (X, y)])
    before = [dict(model.__dict__) for model in models]
    with pytest.raises(ValueError):
        wf.fit_many(models, [(X + 1.0, y), (X, np.full(len(y), np.nan))])
    for model, attributes in zip(models, before, strict=True):
        same(attributes, model.__dict__)


def test_a_forecaster_too():
    interrupt = Interrupt()
    model = wf.WishartForecaster(max_iter=5, n_inducing=8, rank=1, random_state=0, callbacks=[interrupt]).fit(SERIES)
    assert model.n_iter_ > 0
    before, predicted = dict(model.__dict__), model.predict(3)
    with pytest.raises(DataError):
        model.fit(SERIES.assign(c=1.0))  # a constant column
    same(before, model.__dict__)
    interrupt.is_on = True
    with pytest.raises(KeyboardInterrupt):
        model.fit(SERIES * 1000.0 + 5e4)
    same(before, model.__dict__)
    pd.testing.assert_frame_equal(model.predict(3), predicted)


def test_members_and_updates_of_a_forecaster_too():
    interrupt = Interrupt()
    options = {"max_iter": 5, "n_inducing": 8, "rank": 1, "random_state": 0, "validation_fraction": 0, "n_members": 2}
    model = wf.WishartForecaster(callbacks=[interrupt], **options).fit(SERIES[:60])
    before, predicted = dict(model.__dict__), model.predict(3)
    interrupt.is_on = True
    with pytest.raises(KeyboardInterrupt):
        model.fit(SERIES * 1000.0 + 5e4)
    same(before, model.__dict__)
    with pytest.raises(KeyboardInterrupt):
        model.update(SERIES[60:], update_params=True)
    same(before, model.__dict__)
    pd.testing.assert_frame_equal(model.predict(3), predicted)
