"""Which of two fits to a short series is kept: that of the evidence, or that of rolled forecasts."""

import pickle

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.numerics.process import BLAS
from wishflow.series import choices, defaults
from wishflow.series.choosing import bands_of
from wishflow.series.data.frames import read
from wishflow.series.specs import DynamicsSpec
from wishflow.series.trials import Trial, table_of
from wishflow.series.validated import Validated
from wishflow.series.ways import compared
from wishflow.training.journal import Trained

WAYS = ("evidence", "rolled forecasts")
Y = np.random.default_rng(1).normal(size=(40, 24, 2))


def fit_of(factors, drift="linear+gp", y=Y, noise=0.0, seed=0):
    """A fit whose CRPS on held-back rows is one, times a factor for each band of horizons."""
    crps = 1.0 + noise * np.random.default_rng(seed).normal(size=(40, 1, 1)) * np.ones((40, 24, 2))
    for band, factor in zip(bands_of(24), factors, strict=True):
        crps[:, band] *= factor
    trial = Trial("kept", crps, np.ones_like(crps), 1.0, y)
    member = Trained(None, pd.DataFrame(), 0, "", DynamicsSpec(drift=drift))
    return Validated((member,), np.ones(1), table_of([trial], trial), None, None, trial)


@pytest.mark.parametrize(
    ("second", "which"),
    [
        (fit_of((0.9, 0.9, 0.9)), 1),
        (fit_of((1.0, 1.0, 1.0)), 0),
        (fit_of((0.995, 0.995, 0.995)), 0),  # ahead, but by nothing that matters
        (fit_of((0.5, 0.5, 1.01)), 0),  # it loses at one band
        (fit_of((0.9, 0.9, 0.9), y=Y + 1.0), 0),  # scored on other rows
        (fit_of((0.9, 0.9, 0.9), y=Y + 1e-3), 0),
        (fit_of((0.9, 0.9, 0.9), y=Y + 4e-15), 1),  # the same rows after another transform
        (fit_of((0.5, 0.5, 0.5), y=None), 0),
    ],
)
def test_the_rolled_fit_is_kept_where_it_is_ahead_on_the_same_rows(second, which):
    verdict = compared((fit_of((1.0, 1.0, 1.0)), second), WAYS)
    assert verdict.which == which and verdict.why.startswith(f"by {WAYS[which]}: ")
    table = verdict.kept.candidates
    assert table["options by"].tolist() == list(WAYS) and table["kept"].tolist() == [which == 0, which == 1]


@pytest.mark.parametrize(("unit", "offset"), [(1.0, 1e7), (1e-13, 0.0), (1e9, -1e12)])
def test_which_rows_were_scored_does_not_depend_on_unit_and_offset(unit, offset):
    """A difference of a spread is one, beside an offset and in a small unit too, and rounding is none."""
    first, moved = unit * Y + offset, unit * (Y + 1.0) + offset
    for y, which in ((moved, 0), (np.nextafter(first, np.inf), 1)):
        fits = (fit_of((1.0, 1.0, 1.0), y=first), fit_of((0.9, 0.9, 0.9), y=y))
        assert compared(fits, WAYS).which == which


def test_a_linear_fit_must_be_further_ahead_than_one_with_a_gp():
    """The lead is one and a half standard errors: the evidence knows linear models, and says nothing of others."""
    first = fit_of((1.0, 1.0, 1.0))
    rng = np.random.default_rng(0)
    gains = rng.normal(size=40)
    gains = 0.1 * (1.5 * gains.std(ddof=1) / np.sqrt(40) + gains - gains.mean())
    for drift, which in (("linear+gp", 1), ("linear", 0)):
        second = fit_of((1.0, 1.0, 1.0), drift)
        second.rolled.crps[:] -= gains[:, None, None]
        assert compared((first, second), WAYS).which == which


def var_frame(n, order, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.zeros((n + 50, 2))
    for t in range(2, len(rows)):
        rows[t] = 0.5 * rows[t - 1] + (0.3 * rows[t - 2] if order == 2 else 0.0) + rng.normal(size=2)
    return pd.DataFrame(rows[50:], columns=list("ab"))


def settings_of(y):
    options = wf.WishartForecaster().get_params(deep=False)
    return defaults.settings_of(options, read(y, "y"), None, 0.1)


@pytest.mark.parametrize("order", [1, 2])
def test_the_evidence_finds_the_order_of_a_short_auto_regression(order):
    first = settings_of(var_frame(300, order))[0]
    assert first.lags == order and first.way == "evidence" and "evidence" in first.reasons["lags"]


def test_longer_series_have_one_choice():
    (only,) = settings_of(var_frame(520, 1))
    assert only.way == "rolled forecasts"


@pytest.mark.parametrize("n", [4, 40])
def test_many_short_series_are_not_chosen_for_by_the_evidence(n, monkeypatch):
    """It takes minutes for 200 columns."""
    monkeypatch.setattr(choices, "by_the_evidence", None)
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(n, 51)).cumsum(axis=0))
    (only,) = settings_of(wide)
    assert only.way == "rolled forecasts" and only.is_validated


def test_options_are_chosen_with_one_thread_of_blas(monkeypatch):
    """Systems of a few dozen weights: with more threads they take twenty times as long."""
    inside = []

    def watched(*arguments):
        inside.append(len(BLAS._inside))
        return choose(*arguments)

    choose = choices.choose
    monkeypatch.setattr(choices, "choose", watched)
    settings_of(var_frame(100, 1))
    assert inside == [1] and not BLAS._inside


def test_a_short_auto_regression_keeps_the_evidence_and_its_file_says_so(tmp_path):
    y = var_frame(160, 1, seed=3)
    model = wf.WishartForecaster(n_inducing=8, max_iter=20, rank=2, n_train_samples=2, random_state=0).fit(y)
    assert model.reasons_["options"].startswith("by evidence: CRPS on held-back rows")
    assert model.reasons_["options"] in model.summary() and "options by" in model.summary()
    table = model.validation_history_
    assert set(table["options by"]) == set(WAYS) and table["kept"].sum() == 1
    assert (table.loc[table["kept"], "options by"] == "evidence").all()
    model.save(tmp_path / "model.wishflow")
    for again in (wf.load(tmp_path / "model.wishflow"), pickle.loads(pickle.dumps(model))):
        assert again.summary() == model.summary()


@pytest.mark.slow
@pytest.mark.long
def test_a_short_chaotic_series_keeps_what_rolled_better():
    """Of its GP drift the evidence says nothing."""
    rng = np.random.default_rng([2, 480])
    x, rows = np.array([*(5.0 * rng.normal(size=2)), 25.0]), []
    for _ in range(580):
        for _ in range(25):
            slope = [10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8.0 / 3.0 * x[2]]
            x = x + 0.002 * np.array(slope) + np.sqrt(0.002) * 0.3 * rng.normal(size=3)
        rows.append(x)
    model = wf.WishartForecaster().fit(pd.DataFrame(np.array(rows[100:])))
    table = model.validation_history_
    assert model.reasons_["options"].startswith("by rolled forecasts")
    assert (table.loc[table["kept"], "options by"] == "rolled forecasts").all()
    scores = table.filter(like="crps")
    others = scores[table["options by"] == "evidence"].to_numpy()
    assert (scores[table["kept"]].to_numpy() < others.min(axis=0)).all()
