"""Panels and frames: columns by name, names of indices, series that were not known in `fit`."""

import copy

import numpy as np
import pandas as pd
import pytest

import wishflow as wf
from wishflow.errors import DataError, OptionError

SMALL = {"n_inducing": 8, "max_iter": 10, "rank": 2, "n_train_samples": 2, "random_state": 0}
SMALL |= {"validation_fraction": 0}
N = 60
HOURS = pd.date_range("2021-03-01", periods=N, freq="h", name="when")
X = pd.DataFrame(
    {"u": np.sin(np.arange(N + 8)), "v": np.cos(np.arange(N + 8))}, pd.date_range(HOURS[0], periods=N + 8, freq="h")
)


def walk(seed=0):
    steps = np.random.default_rng(seed).normal(size=(N, 2)) * [1.0, 30.0]
    return pd.DataFrame(10.0 + np.cumsum(steps, axis=0), HOURS, ["a", "b"])


def panel(seeds=(1, 2)):
    return pd.concat({f"s{seed}": walk(seed) for seed in seeds}, names=["id"])


@pytest.fixture(scope="module")
def single():
    return wf.WishartForecaster(**SMALL).fit(walk().iloc[:50], X)


@pytest.fixture(scope="module")
def many():
    return wf.WishartForecaster(**SMALL).fit(panel().groupby("id").head(50))


# --- columns ----------------------------------------------------------------------------------------


def test_columns_are_found_by_their_names(single):
    y, later = walk(), walk().iloc[50:]
    turned, known = later[["b", "a"]], X[["v", "u"]]
    np.testing.assert_array_equal(single.log_prob(turned, known), single.log_prob(later, X))
    np.testing.assert_array_equal(single.covariance(turned, known), single.covariance(later, X))
    one, two = copy.copy(single).update(later, X), copy.copy(single).update(turned, known)
    np.testing.assert_array_equal(one.tails_[None].values, two.tails_[None].values)
    found = single.forecast(3, known, n_draws=30)
    np.testing.assert_array_equal(found.samples, single.forecast(3, X, n_draws=30).samples)
    for kind in ("mixture", "moments"):
        np.testing.assert_array_equal(found.log_prob(y[["b", "a"]], kind), found.log_prob(y, kind))
    frames = {"s1": walk(1), "s2": walk(2)}
    one, two = (
        wf.WishartForecaster(**SMALL).fit({"s1": frames["s1"], "s2": frames["s2"][names]})
        for names in (["a", "b"], ["b", "a"])
    )
    pd.testing.assert_frame_equal(one.predict(2), two.predict(2))


@pytest.mark.parametrize("method", ["log_prob", "update", "covariance"])
def test_other_columns_are_named(single, method):
    later, call = walk().iloc[50:], getattr(single, method)
    with pytest.raises(DataError, match=r"y has columns \['a', 'b', 'c'\]; fit saw \['a', 'b'\] \(unknown: 'c'\)"):
        call(later.assign(c=1.0), X)
    with pytest.raises(DataError, match=r"y .*\(unknown: 'z'; missing: 'b'\)"):
        call(later.rename(columns={"b": "z"}), X)
    with pytest.raises(DataError, match=r"X .*\(missing: 'v'\)"):
        call(later, X[["u"]])


def test_other_columns_of_what_came_are_named(single):
    found = single.forecast(3, X, n_draws=30)
    with pytest.raises(DataError, match=r"the forecast has \['a', 'b'\] \(missing: 'b'\)"):
        found.log_prob(walk()[["a"]])
    with pytest.raises(DataError, match=r"twice: 'a'"):
        found.log_prob(walk()[["a", "b", "a"]])
    with pytest.raises(DataError, match=r"X .*\(unknown: 'w'\)"):
        single.forecast(3, X.assign(w=1.0))


def test_a_series_needs_no_name():
    y = walk()["a"]
    model = wf.WishartForecaster(**SMALL).fit(y.iloc[:50])
    np.testing.assert_array_equal(model.log_prob(y.iloc[50:].rename(None)), model.log_prob(y.iloc[50:]))
    with pytest.raises(DataError, match="unknown: 'other'"):
        model.log_prob(y.iloc[50:].rename("other"))


# --- names of indices -------------------------------------------------------------------------------


def test_names_of_the_index_are_kept(single, tmp_path):
    single.save(tmp_path / "model")
    for model in (single, wf.load(tmp_path / "model")):
        found = model.forecast(2, X, n_draws=4)
        frames = [found.mean, found.quantile(0.5), model.predict(2, X), model.predict_var(2, X)]
        frames += [model.predict_interval([2, 4], X), model.predict_quantiles(HOURS[50:52].rename("other"), X)]
        assert {frame.index.name for frame in frames} == {"when"}
        assert model.log_prob(walk().iloc[50:], X).index.name == "when"
        assert found.samples.dims[1] == found.covariance.dims[0] == "time"
        assert model.covariance(walk(), X).dims[0] == "time"


@pytest.mark.parametrize("levels", [["id"], ["region", "id"]])
def test_names_of_the_levels_of_a_panel_are_kept(levels, tmp_path):
    y = panel()
    if len(levels) == 2:
        y = pd.concat({"north": y, "south": y + 1.0}, names=["region"])
    model = wf.WishartForecaster(**SMALL).fit(y)
    model.save(tmp_path / "model")
    for each in (model, wf.load(tmp_path / "model")):
        assert list(each.predict(2).index.names) == [*levels, "when"]
        assert list(each.predict_interval(2).index.names) == [*levels, "when"]
        assert each.log_prob(y).index.equals(y.index) and list(each.log_prob(y).index.names) == [*levels, "when"]


# --- series -----------------------------------------------------------------------------------------


def test_series_that_were_not_known_have_scores_and_forecasts(many):
    """They have the parameters, the scales and the transforms that were learnt, and a past of their own."""
    new = panel((7,))
    scores = many.log_prob(new)
    assert list(scores.isna()) == [True] + [False] * (N - 1)
    moved = copy.copy(many).update(new)
    assert list(moved.forecast(2, n_draws=4)) == ["s1", "s2", "s7"]
    assert moved.forecast(2, n_draws=4)["s7"].index[0] == HOURS[-1] + pd.Timedelta("1h")
    known, other = ({name: walk(1).iloc[:50]} for name in ("s1", "s9"))
    np.testing.assert_array_equal(many.log_prob(known), many.log_prob(other))


def test_one_series_and_a_panel_are_told_apart(single, many):
    for method in ("log_prob", "update", "covariance"):
        with pytest.raises(DataError, match=r"fitted to a panel: pass a dict of frames by id, \{id: y\}"):
            getattr(many, method)(walk())
        with pytest.raises(DataError, match="y is a panel of 2 series; the forecaster was fitted to one"):
            getattr(single, method)(panel(), X)
    with pytest.raises(DataError, match=r"y\['x'\] is a panel itself"):
        wf.WishartForecaster(**SMALL).fit({"x": panel()})


@pytest.mark.parametrize("options", [{}, {"limits": 0.0, "panel_effects": True}])
def test_series_are_simulated_together_with_the_numbers_of_each_alone(options):
    """Series with holes, with ends of their own and with horizons of other lengths, in one program or one by one."""
    y = {f"s{seed}": walk(seed) for seed in range(1, 6)}
    y["s2"] = y["s2"].iloc[:-3]
    y["s3"].iloc[-1, 0] = np.nan
    model = wf.WishartForecaster(**SMALL | options).fit(y)
    stamps = pd.date_range(HOURS[-1], periods=8, freq="h")[1:]
    for fh in (4, stamps):
        together = model.forecast(fh, n_draws=12)
        for key in y:
            alone = copy.copy(model)
            alone.tails_ = {key: model.tails_[key]}
            one = alone.forecast(fh, n_draws=12)[key]
            np.testing.assert_allclose(together[key].samples, one.samples, rtol=1e-9, atol=1e-9)
            rows = np.asarray(one.samples[0])
            np.testing.assert_allclose(together[key].log_prob(rows), one.log_prob(rows), rtol=1e-8)


def test_scores_of_a_panel_are_those_of_each_series():
    """With noise that is not random (no draws of J) to the last digits: rows of all series are scored in one call."""
    y = {f"s{seed}": walk(seed) for seed in (1, 2, 3)}
    y["s2"].iloc[20:23, 0] = np.nan
    y["s3"] = y["s3"].iloc[:1]
    model = wf.WishartForecaster(**SMALL | {"drift": "linear", "diffusion": "constant"}).fit(panel())
    whole = model.log_prob(y)
    for key, frame in y.items():
        np.testing.assert_allclose(whole[key], model.log_prob({key: frame})[key], rtol=1e-9)


# --- backtests --------------------------------------------------------------------------------------


def test_a_backtest_of_a_panel_is_that_of_each_series(many):
    """Each is forecast from its own end: as by hand, and as where the others are not there."""
    y = panel()
    scores = wf.backtest(many, y, fh=3, initial=50, n_draws=20)
    assert dict(scores.sizes) == {"series": 2, "origin": 3, "horizon": 3, "variable": 2}
    assert scores["crps"].dims == ("series", "origin", "horizon", "variable") and scores.attrs == {"coverage": 0.8}
    assert list(scores["series"].values) == ["s1", "s2"] and list(scores["origin"].values) == list(HOURS[[50, 53, 56]])
    moved = copy.copy(many).update(y.groupby("id").head(53)).forecast(3, n_draws=20)
    for key in ("s1", "s2"):
        expected = wf.metrics.crps_samples(y.loc[key].to_numpy()[53:56], moved[key].samples.values)
        np.testing.assert_allclose(scores["crps"].sel(series=key)[1], expected)
        one = wf.backtest(many, y.loc[[key]], fh=3, initial=50, n_draws=20)
        np.testing.assert_array_equal(one["log_density"][0], scores["log_density"].sel(series=key))
    by_dict = wf.backtest(many, {key: y.loc[key] for key in ("s1", "s2")}, fh=3, initial=HOURS[50], n_draws=20)
    np.testing.assert_array_equal(by_dict["crps"], scores["crps"])
    assert list(many.tails_) == ["s1", "s2"] and many.end_ == HOURS[49]


def test_series_of_a_backtest_begin_and_end_when_they_like():
    """All are fitted up to one stamp; a series that begins after it is forecast from its second row on."""
    y = {"whole": walk(1), "ends": walk(2).iloc[:55], "late": walk(3).iloc[54:], "over": walk(4).iloc[:51]}
    scores = wf.backtest(wf.WishartForecaster(**SMALL), y, fh=2, initial=50, n_draws=20)
    assert list(scores["series"].values) == ["whole", "ends", "late"]  # "over" leaves no two rows to score
    has_score = np.isfinite(scores["log_density"].values)
    places = HOURS.get_indexer(scores["origin"].values)
    for k, expected in enumerate(([50, 52, 54, 56, 58], [50, 52], [55, 57])):
        assert list(places[has_score[k].all(axis=-1)]) == expected
    with pytest.raises(OptionError, match="no series has an origin"):
        wf.backtest(wf.WishartForecaster(**SMALL), y, fh=20, initial=50)


def test_a_backtest_of_a_panel_refits_all_series_together():
    """Up to the stamp of every second origin of any of them."""
    y = {"whole": walk(1), "late": walk(2).iloc[30:]}
    found = wf.backtest(wf.WishartForecaster(**SMALL), y, fh=2, initial=50, n_draws=10, refit=2)
    assert dict(found.sizes) == {"series": 2, "origin": 5, "horizon": 2, "variable": 2}
    for first in (0, 2, 4):
        rows = {key: frame.loc[: HOURS[49 + 2 * first]] for key, frame in y.items()}
        model = wf.WishartForecaster(**SMALL).fit(rows)
        expected = wf.backtest(model, y, fh=2, initial=50 + 2 * first, n_draws=10)
        np.testing.assert_array_equal(found["crps"][:, first : first + 2], expected["crps"][:, :2])


def test_a_series_without_a_value_yet_is_named_and_begins_with_its_first_one(many):
    empty = walk(3).iloc[:2] * np.nan
    model = copy.copy(many).update({"new": empty})
    with pytest.raises(DataError, match="the series 'new' has no value yet"):
        model.forecast(2, n_draws=5)
    y = {"s1": walk(1), "s2": walk(2).iloc[52:].reindex(HOURS)}
    scores = wf.backtest(wf.WishartForecaster(**SMALL), y, fh=2, initial=50, n_draws=5)
    origins = scores["origin"].values[np.isfinite(scores["energy"].sel(series="s2")).all("horizon")]
    assert list(HOURS.get_indexer(origins)) == [53, 55, 57]


@pytest.mark.slow
@pytest.mark.parametrize(
    "index",
    [
        pd.period_range("2000-01", periods=N, freq="M"),
        pd.date_range("2021-03-26", periods=N, freq="h", tz="Europe/Berlin"),
        pd.RangeIndex(N),
    ],
    ids=["periods", "zone", "numbers"],
)
def test_backtests_of_panels_with_any_stamps_and_common_covariates(index):
    y = {("north", "x"): walk(1).set_axis(index), ("south", "z"): walk(2).set_axis(index).iloc[:55]}
    known = X.iloc[:N].set_axis(index)
    scores = wf.backtest(wf.WishartForecaster(**SMALL), y, known, fh=3, initial=45, n_draws=5)
    assert list(scores["series"].values) == list(y) and list(scores["origin"].values) == list(index[45:60:3].values)
    assert list(np.isfinite(scores["crps"]).sum(("origin", "horizon", "variable")).values) == [30, 18]


def test_what_a_backtest_cannot_roll_is_named(single, many):
    with pytest.raises(OptionError, match="fitted to a panel, y is one series"):
        wf.backtest(many, walk(), fh=3, initial=50)
    with pytest.raises(OptionError, match="fitted to one series, y is a panel"):
        wf.backtest(single, panel(), X, fh=3, initial=50)
    with pytest.raises(OptionError, match=r"seen data of 's1' up to .* 01:00:00, the first origin is 2021-03-02"):
        wf.backtest(many, panel(), fh=3, initial=40)
    late = {"u": walk(1).where(np.tile(np.arange(N)[:, None] >= 30, 2)), "v": walk(2).iloc[30:]}
    with pytest.raises(OptionError, match=r"no series has a value before .*; choose a later initial"):
        wf.backtest(wf.WishartForecaster(**SMALL), late, fh=3, initial=20)


# --- names that a model file cannot hold ------------------------------------------------------------

UNKEPT = [None, np.nan, pd.Timestamp("2024-01-01"), b"x", "\ud800"]


@pytest.mark.parametrize("name", UNKEPT, ids=repr)
def test_names_of_columns_that_files_cannot_hold_are_refused_before_training(name):
    """Saved under the name None, a forecaster could not be loaded; others could not be saved."""
    with pytest.raises(DataError, match="which model files cannot hold; expected text or finite numbers"):
        wf.WishartForecaster(**SMALL).fit(walk().set_axis(pd.Index([name, "b"], dtype=object), axis=1))


@pytest.mark.parametrize("names", [[name, "v"] for name in UNKEPT] + [["v", "v"], [("u", 1), ("v", 1)]], ids=repr)
def test_names_of_covariates_that_files_cannot_hold_are_refused_before_training(names):
    """`save` wrote two levels, or one name twice, without a word, and `load` took the file for a damaged one."""
    known = X.set_axis(pd.Index(names, dtype=object, tupleize_cols=False), axis=1)
    with pytest.raises(DataError, match="column"):
        wf.WishartForecaster(**SMALL).fit(walk(), known)


@pytest.mark.parametrize("name", UNKEPT, ids=repr)
def test_ids_of_series_that_files_cannot_hold_are_refused_before_training(name):
    with pytest.raises(DataError, match=r"has the id .*which model files cannot hold"):
        wf.WishartForecaster(**SMALL).fit({"s": walk(), name: walk(1)})


def test_update_refuses_the_ids_that_fit_refuses():
    model = wf.WishartForecaster(**SMALL).fit({"s": walk(), "t": walk(1)})
    for name in (pd.Timestamp("2024-01-01"), ("u", 1)):
        with pytest.raises(DataError, match=r"model files cannot hold|as many parts"):
            model.update({name: walk(2)})
    assert set(model.tails_) == {"s", "t"}


def test_ids_with_different_numbers_of_parts_are_refused():
    with pytest.raises(DataError, match=r"the ids 's' and \('t', 1\); expected as many parts"):
        wf.WishartForecaster(**SMALL).fit({"s": walk(), ("t", 1): walk(1)})
