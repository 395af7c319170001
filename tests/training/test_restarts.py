"""Phases by L-BFGS have no states of their own: one that was killed starts anew, with the same end."""

import jax
import numpy as np
import pytest

import wishflow as wf
from wishflow.callbacks import Callback

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * RNG.normal(size=60)
SMALL = {"n_inducing": 8, "random_state": 0}
FITS = {
    "fit": lambda **k: wf.SparseGPRegressor(**SMALL, **k).fit(X, Y),
    "output": lambda **k: wf.FlowRegressor(max_iter=120, n_steps=2, validation_fraction=0, **SMALL, **k).fit(X, Y),
}


@pytest.fixture(autouse=True)
def _library_context():
    """Estimators are tested outside the library's own context."""
    yield


class Killed(BaseException):
    """Nobody catches it, as nobody catches kill -9."""


class KillIn(Callback):
    """Ends the fit at the first chunk of a phase."""

    def __init__(self, phase):
        self.phase = phase

    def on_chunk(self, event):
        if event.phase == self.phase:
            raise Killed


@pytest.mark.parametrize("phase", FITS)
def test_a_fit_killed_in_a_phase_by_lbfgs_ends_as_one_that_was_not(phase, tmp_path):
    whole = FITS[phase]()
    assert phase in set(whole.history_["phase"])
    with pytest.raises(Killed):
        FITS[phase](checkpoint_dir=tmp_path, callbacks=[KillIn(phase)])
    again = FITS[phase](checkpoint_dir=tmp_path)
    assert again.status_ == whole.status_
    for one, other in zip(jax.tree.leaves(whole.model_), jax.tree.leaves(again.model_), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(whole.history_["objective"], again.history_["objective"])
    np.testing.assert_array_equal(whole.predict(X), again.predict(X))
