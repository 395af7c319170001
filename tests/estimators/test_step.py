"""`step`: gaps are cut into Euler steps no longer than it, in training, scores, forecasts and files alike."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import wishflow as wf
from wishflow.series.data.horizons import horizon
from wishflow.series.data.intake import further_rows

LINEAR = {
    "drift": "linear",
    "diffusion": "diagonal",
    "n_inducing": 4,
    "max_iter": 5,
    "n_train_samples": 2,
    "validation_fraction": 0,
}
SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 2, "n_train_samples": 2, "validation_fraction": 0}
N = 150


@pytest.fixture(scope="module")
def y():
    """An Ornstein–Uhlenbeck process with a fast coordinate, at every hour."""
    rng = np.random.default_rng(0)
    decay, sd = np.exp([-0.9, -0.2]), np.array([1.0, 0.5])
    x = np.zeros((N, 2))
    for t in range(1, N):
        x[t] = decay * x[t - 1] + sd * np.sqrt(1 - decay**2) * rng.normal(size=2)
    return pd.DataFrame(5.0 + x, index=pd.date_range("2021-01-01", periods=N, freq="h"), columns=["a", "b"])


@pytest.fixture(scope="module")
def halves(y):
    return wf.WishartForecaster(step=0.5, **LINEAR).fit(y.iloc[:140])


def n_ticks(model):
    """Ticks of the last rows of the training data, and of a forecast over three rows."""
    units, tail = model.units_, model.tails_[None]
    (ticks,) = units.ticks(tail)
    index = horizon(units.axis, 3, tail.index[-1])
    h, _, place = units.future_ticks(None, tail, int(ticks.row[-1]), index, None)
    return len(ticks.h) - 1, len(h), h, place


def test_half_a_step_takes_twice_as_many(y, halves):
    past, ahead, h, place = n_ticks(wf.WishartForecaster(**LINEAR).fit(y.iloc[:140]))
    assert n_ticks(halves)[:2] == (2 * past, 2 * ahead)
    np.testing.assert_allclose(h, 1.0)
    np.testing.assert_allclose(n_ticks(halves)[2], 0.5)
    np.testing.assert_array_equal(n_ticks(halves)[3], 2 * place + 1)


@pytest.mark.parametrize("step, n", [(1.0, 1), (0.5, 2), (0.25, 4)])
def test_means_follow_the_recursion_of_euler(y, step, n):
    """x ← x + step (Wx + b), n times from each row to the next; noise has no say in the means of a linear model."""
    model = wf.WishartForecaster(step=step, **LINEAR).fit(y.iloc[:140])
    linear, scaler = model.model_.field.linear, model.units_.y_scaler
    z, means = scaler.forward(y.iloc[139].to_numpy()), []
    for k in range(4 * n):
        z = z + step * (np.asarray(linear.weights) @ z + np.asarray(linear.constant))
        means += [z] if k % n == n - 1 else []
    found = model.forecast(4, n_draws=4000).samples.values
    error = found.std(axis=0) / np.sqrt(4000)
    assert (np.abs(found.mean(axis=0) - scaler.inverse(np.stack(means))) < 5 * error).all()


def test_shorter_steps_come_nearer_to_the_rate_of_the_process():
    """(1 + w/n)ⁿ is what is seen from row to row, here e^−0.9: w is −0.59 with one step, −0.81 with four."""
    rng = np.random.default_rng(1)
    decay, x = np.exp(-0.9), np.zeros(3000)
    for t in range(1, len(x)):
        x[t] = decay * x[t - 1] + np.sqrt(1 - decay**2) * rng.normal()
    rates = {}
    for step in (1.0, 0.25):
        options = {**LINEAR, "max_iter": 1000, "learning_rate": 0.02}
        model = wf.WishartForecaster(step=step, **options).fit(pd.Series(x))
        rates[step] = float(np.asarray(model.model_.field.linear.weights)[0, 0])
    assert rates[1.0] == pytest.approx(decay - 1.0, abs=0.06)
    assert rates[0.25] == pytest.approx(4 * ((1.0 + rates[1.0]) ** 0.25 - 1.0), abs=0.06)


def test_a_file_keeps_the_step(halves, y, tmp_path):
    halves.save(tmp_path / "model.wf")
    again = wf.load(tmp_path / "model.wf")
    assert again.step == again.spec_.step == again.units_.step == 0.5
    np.testing.assert_array_equal(again.forecast(3, n_draws=5).samples, halves.forecast(3, n_draws=5).samples)
    pd.testing.assert_series_equal(again.log_prob(y.iloc[140:]), halves.log_prob(y.iloc[140:]))


def test_a_file_from_before_the_option_has_steps_of_one(y, tmp_path):
    from wishflow.files.model_file import read_model, write_model

    model = wf.WishartForecaster(**LINEAR).fit(y)
    model.save(tmp_path / "model.wf")
    header, arrays = read_model(tmp_path / "model.wf")
    del header["parameters"]["step"]
    write_model(tmp_path / "old.wf", header, arrays)
    again = wf.load(tmp_path / "old.wf")
    assert again.step == 1.0
    np.testing.assert_array_equal(again.forecast(3, n_draws=5).samples, model.forecast(3, n_draws=5).samples)


def test_the_step_is_an_option_as_all_others():
    model = wf.WishartForecaster(step=0.5)
    assert clone(model).get_params()["step"] == 0.5 and model.set_params(step=2.0).step == 2.0
    assert wf.WishartForecaster().step == 1.0


@pytest.mark.parametrize(
    "option",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"objective": "rollout"}, marks=pytest.mark.slow),
        pytest.param({"latent_dim": 2}, marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param({"innovations": "student_t"}, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
    ids=str,
)
def test_every_model_can_take_shorter_steps(y, option):
    holed = y.mask(np.random.default_rng(2).uniform(size=y.shape) < 0.1).drop(index=y.index[50:54])
    model = wf.WishartForecaster(step=0.4, calendar=True, **{**SMALL, **option}).fit(holed.iloc[:140])
    assert np.isfinite(model.history_["objective"]).all()
    assert np.isfinite(model.forecast(3, n_draws=10).samples).all()
    assert np.isfinite(model.log_prob(holed.iloc[140:]).dropna()).all()
    assert np.isfinite(model.covariance(holed).values[-1]).all()


def test_one_step_ahead_a_score_is_a_forecast(halves, y):
    """Two routes: the filter over two half steps, and the mixture of last half steps over draws of the first."""
    score = halves.log_prob(y.iloc[140:141]).iloc[0]
    assert halves.forecast([1], n_draws=8000).log_prob(y.iloc[140:141]).iloc[0] == pytest.approx(score, abs=0.03)


def test_steps_of_several_units(y):
    """A gap of three units is one step of three, two steps of two; gaps of one unit stay as they are."""
    gappy = y.drop(index=[*y.index[50:52], *y.index[80:82]])
    for step, lengths in ((3.0, {1.0, 3.0}), (2.0, {1.0, 1.5})):
        model = wf.WishartForecaster(step=step, **LINEAR).fit(gappy)
        (ticks,) = model.units_.ticks(further_rows(model.units_, _panel(gappy), None)[None][0])
        assert set(np.round(ticks.h[1:], 9)) == lengths


def _panel(frame):
    from wishflow.series.data.frames import read

    return read(frame, "y")
