"""Panels: each series has its own level and scale, shrunk towards those of all series."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.numerics.scaling import Scaler
from wishflow.series.choosing import scalers_of
from wishflow.series.data.effects import series_scalers
from wishflow.series.defaults import judge_of

LINEAR = {"drift": "linear", "diffusion": "constant", "lags": 1, "calendar": False, "transform": None}
LINEAR |= {"n_inducing": 4, "max_iter": 20, "rank": 1, "random_state": 0, "validation_fraction": 0}
LEVELS, SCALES = (0.0, 40.0, 100.0, -60.0), (1.0, 5.0, 20.0, 0.5)


def series(n, level, scale, seed, phi=0.7):
    rng = np.random.default_rng(seed)
    z = np.zeros(n)
    for t in range(1, n):
        z[t] = phi * z[t - 1] + np.sqrt(1.0 - phi**2) * rng.normal()
    return pd.DataFrame({"a": level + scale * z}, pd.date_range("2021", periods=n, freq="h", name="when"))


def panel(n, seed=0):
    return {f"s{i}": series(n, *pair, seed + i) for i, pair in enumerate(zip(LEVELS, SCALES, strict=True))}


@pytest.fixture(scope="module")
def many():
    return wf.WishartForecaster(panel_effects=True, **LINEAR).fit(pd.concat(panel(150), names=["id"]))


def scalers(rows):
    rows = {key: np.asarray(part, float)[:, None] for key, part in rows.items()}
    joined = np.concatenate(list(rows.values()))
    pooled = Scaler(np.nanmean(joined, 0), np.nanstd(joined, 0))
    return series_scalers(rows, pooled), pooled


# --- shrinkage --------------------------------------------------------------------------------------


def test_many_rows_have_their_own_mean_and_deviation():
    rng = np.random.default_rng(0)
    rows = {i: rng.normal(level, scale, 20_000) for i, (level, scale) in enumerate(zip(LEVELS, SCALES, strict=True))}
    found, _ = scalers(rows)
    for i, part in rows.items():
        assert found[i].mean[0] == pytest.approx(part.mean(), abs=0.02 * part.std())
        assert found[i].scale[0] == pytest.approx(part.std(), rel=0.02)


def test_one_row_is_shrunk_as_its_noise_asks_for():
    """Levels N(0, ½²) with noise of deviation 1: a row counts by ½²/(½² + 1) = 1/5, and no row by nothing."""
    rng = np.random.default_rng(1)
    rows = {i: rng.normal(0.5 * rng.normal(), 1.0, 400) for i in range(60)}
    found, pooled = scalers({**rows, "one": [3.0], "none": [np.nan]})
    assert found["one"].mean[0] - pooled.mean[0] == pytest.approx(3.0 / 5.0, abs=0.2)
    assert found["none"].mean[0] == pytest.approx(pooled.mean[0])
    # The deviation of a series without rows is that of all rows: √(1 + ½²).
    assert found["none"].scale[0] == pytest.approx(pooled.scale[0], rel=0.05)
    assert found["one"].scale[0] < found["none"].scale[0]


def test_series_of_one_law_have_one_level_and_scale():
    rng = np.random.default_rng(2)
    found, pooled = scalers({i: rng.normal(3.0, 2.0, 30) for i in range(40)})
    levels, scales = (np.array([getattr(s, name)[0] for s in found.values()]) for name in ("mean", "scale"))
    raw = 2.0 / np.sqrt(30)  # the error of a mean of 30 rows
    assert levels.std() < 0.6 * raw and scales.std() < 0.6 * 2.0 / np.sqrt(60)
    assert levels.mean() == pytest.approx(pooled.mean[0], abs=0.1)


def test_correlated_rows_say_less():
    """Paths that hardly return to their level: their means are no levels."""
    rng = np.random.default_rng(3)
    free = {i: rng.normal(0.3 * i, 1.0, 100) for i in range(6)}
    slow = {i: series(100, 0.3 * i, 1.0, i, phi=0.97)["a"].to_numpy() for i in range(6)}

    def kept(rows):
        found, pooled = scalers(rows)
        return np.mean([(found[i].mean[0] - pooled.mean[0]) / (np.mean(rows[i]) - pooled.mean[0]) for i in rows])

    assert kept(slow) < 0.8 * kept(free)


def test_a_constant_series_has_a_scale():
    rng = np.random.default_rng(4)
    found, _ = scalers({"a": rng.normal(size=50), "b": np.full(50, 2.0), "c": rng.normal(size=50)})
    assert found["b"].scale[0] > 0.0 and np.isfinite(found["b"].mean[0])


def test_a_panel_of_one_series_has_no_effects():
    assert scalers({"a": np.arange(9.0)})[0] == {}


def test_choices_are_made_in_the_units_of_each_series():
    options = {"max_gap": 24, "freq": None, "panel_effects": True}
    judge = judge_of(options, wf.series.data.frames.read(panel(150), "y"), None, 0.1)
    for piece, scaler in zip(judge.pieces, scalers_of(judge.pieces, judge.raw), strict=True):
        z = scaler.forward(piece.values)
        assert abs(z.mean()) < 0.3 and 0.7 < z.std() < 1.4


# --- the forecaster ---------------------------------------------------------------------------------


def test_series_of_different_size_share_a_model_without_loss(many):
    """One model of four series is no worse, a step ahead, than a model for each; without effects it is."""
    later = panel(350)
    rows = {key: frame.iloc[150:] for key, frame in later.items()}
    pooled = many.log_prob(rows).groupby(level=0).mean()
    alone = pd.Series(
        {key: wf.WishartForecaster(**LINEAR).fit(later[key].iloc[:150]).log_prob(rows[key]).mean() for key in rows}
    )
    assert pooled.mean() > alone.mean() - 0.02
    common = wf.WishartForecaster(**LINEAR).fit({key: frame.iloc[:150] for key, frame in later.items()})
    assert common.log_prob(rows).mean() < pooled.mean() - 0.5
    ahead = many.forecast(200, n_draws=100)
    for key, level, scale in zip(later, LEVELS, SCALES, strict=True):
        assert float(ahead[key].samples[:, -1].mean()) == pytest.approx(level, abs=scale)
        assert float(ahead[key].samples[:, -1].std()) == pytest.approx(scale, rel=0.5)


def test_densities_have_the_scale_of_their_series(many):
    """∫ p(y) dy = 1 on a grid of the next value of each series."""
    for key, found in many.forecast(1, n_draws=50).items():
        mean, sd = float(found.samples.mean()), float(found.samples.std())
        grid = np.linspace(mean - 8 * sd, mean + 8 * sd, 60)
        densities = np.exp([float(found.log_prob(np.array([[y]])).iloc[0]) for y in grid])
        assert np.trapezoid(densities, grid) == pytest.approx(1.0, abs=0.02), key


def test_series_added_by_update_have_levels_of_their_own(many, tmp_path):
    """One block of rows or row by row: the same level in the end, near that of a fit, and rows in it."""
    rows, fitted = series(60, 300.0, 30.0, 9), many.units_
    assert fitted.of_series("new") is fitted  # until rows of it are seen
    at_once, by_parts = copy.copy(many).update({"new": rows}), copy.copy(many)
    for start in (0, 1, 20):
        by_parts.update({"new": rows.iloc[start : {0: 1, 1: 20, 20: 60}[start]]})
    refitted = wf.WishartForecaster(panel_effects=True, **LINEAR).fit({**panel(150), "new": rows})
    expected = refitted.units_.effects["new"]
    for model in (at_once, by_parts):
        found = model.units_.effects["new"]
        assert found.mean[0] == pytest.approx(expected.mean[0], abs=0.2 * expected.scale[0])
        assert found.scale[0] == pytest.approx(expected.scale[0], rel=0.25)
        np.testing.assert_allclose(model.units_.of_series("new").inverse(model.tails_["new"].values), rows)
        for key in ("s0", "s1"):  # those of fit stay as they are
            assert model.units_.effects[key] is many.units_.effects[key]
            assert model.tails_[key] is many.tails_[key] or len(model.tails_[key]) == len(many.tails_[key])
    np.testing.assert_allclose(by_parts.units_.effects["new"].mean, at_once.units_.effects["new"].mean)
    assert float(at_once.forecast(200, n_draws=100)["new"].samples[:, -1].std()) == pytest.approx(30.0, rel=0.5)
    at_once.save(tmp_path / "model.wf")
    loaded = wf.load(tmp_path / "model.wf")
    assert loaded.units_.added == ("new",)
    pd.testing.assert_frame_equal(loaded.predict(3), at_once.predict(3))


def test_a_first_row_moves_a_level_by_its_share(many):
    """With one row the level is between that of all series and the row, and its scale is as those of the others."""
    one = copy.copy(many).update({"new": series(60, 300.0, 30.0, 9).iloc[:1]})
    y, found, centre = 300.0, one.units_.effects["new"], many.units_.y_scaler.mean[0]
    assert centre < found.mean[0] < y
    assert min(SCALES) < found.scale[0] < max(SCALES)
    assert np.isfinite(one.forecast(2, n_draws=5)["new"].samples).all()


def test_limits_are_those_of_all_series_together():
    rows = panel(120)
    model = wf.WishartForecaster(limits=0, panel_effects=True, **LINEAR).fit(rows)
    low, high = (getattr(pd.concat(rows)["a"], name)() for name in ("min", "max"))
    draws = [found.samples.values for found in model.forecast(300, n_draws=100).values()]
    assert min(part.min() for part in draws) >= low - 1e-6 and max(part.max() for part in draws) <= high + 1e-6
    for key in rows:
        z = model.units_.from_common(key, model.limits_)
        np.testing.assert_allclose(model.units_.of_series(key).inverse(z)[:, 0], [low, high])


def test_files_hold_levels_and_scales(many, tmp_path):
    many.save(tmp_path / "model.wf")
    later = {"s2": panel(160)["s2"].iloc[150:]}
    for other in (wf.load(tmp_path / "model.wf"), pickle.loads(pickle.dumps(many))):
        np.testing.assert_array_equal(other.log_prob(later), many.log_prob(later))
        pd.testing.assert_frame_equal(other.predict(3), many.predict(3))


def test_names_of_the_index_are_kept_whatever_form_rows_have(many):
    later = {key: frame.iloc[150:] for key, frame in panel(152).items() if key in ("s0", "s1")}
    for given in (later, pd.concat(later, names=["id"]), pd.concat(later)):
        assert many.log_prob(given).index.names == ["id", "when"]
    assert many.log_prob(pd.concat(later, names=["other"])).index.names == ["other", "when"]


@pytest.mark.slow
def test_held_back_rows_choose_in_the_units_of_each_series():
    """The whole of the defaults on a panel: scores of candidates are not those of the widest series alone."""
    model = wf.WishartForecaster(n_inducing=8, max_iter=10, rank=1, panel_effects=True, random_state=0).fit(panel(200))
    scores = model.validation_history_.filter(like="crps").to_numpy()
    assert (scores > 0.05).all() and (scores < 1.0).all()
