"""What holds for every regressor and classifier, whatever its options."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import wishflow as wf

from . import build, frozen
from .build import CASES
from .conftest import Count, Stop, numbers, same

REGRESSORS = [name for name in CASES if name != "classes"]
GAUSSIAN = [name for name in REGRESSORS if name != "counts"]  # components are normal
ONE_REAL = [name for name in GAUSSIAN if name != "two_targets"]
ROWS = (0, 7, 42)
LEVELS = np.array([0.1, 0.5, 0.9])  # always three: programs are compiled for their number

every = pytest.mark.parametrize("name", list(CASES))
regressors = pytest.mark.parametrize("name", REGRESSORS)


def bad(X, value, row=0):
    """A copy of the rows in which one entry is another."""
    changed = X.copy()
    if hasattr(X, "iloc"):
        changed.iloc[row, 0] = value
    else:
        changed[(row, 0) if X.ndim == 2 else row] = value
    return changed


def targets(values):
    """(N, P, …) for any number of targets."""
    values = np.asarray(values)
    return values if values.ndim > 1 else values[:, None]


# --- all predictions describe one distribution ---------------------------------------------------


@pytest.mark.parametrize("name", ONE_REAL)
@pytest.mark.parametrize("row", ROWS[:2])
def test_the_density_has_the_predicted_moments_and_quantiles(case, row):
    x = case.X[[row]]
    mean, sd = (float(values[0]) for values in case.model.predict(x, return_std=True))
    y, step = np.linspace(mean - 25 * sd, mean + 25 * sd, 2501, retstep=True)
    mass = step * np.exp(case.model.log_prob(np.repeat(x, len(y), axis=0), y))
    assert mass.sum() == pytest.approx(1.0, abs=1e-6)
    assert mass @ y == pytest.approx(mean, abs=1e-5 * sd)
    assert mass @ (y - mean) ** 2 == pytest.approx(sd**2, rel=1e-4)
    levels = np.array([0.01, 0.3, 0.95])
    quantiles = case.model.predict_quantiles(x, levels)[0]
    np.testing.assert_allclose(np.interp(quantiles, y + step / 2, np.cumsum(mass)), levels, atol=3e-4)


def test_the_density_of_two_targets_is_joint(fitted):
    case = fitted("two_targets")
    x = case.X.iloc[[3]]
    mean, sd = (values[0] for values in case.model.predict(x, return_std=True))
    z, step = np.linspace(-12.0, 12.0, 161, retstep=True)
    both = np.stack(np.meshgrid(z, z, indexing="ij"), -1).reshape(-1, 2)
    mass = step**2 * sd.prod() * np.exp(case.model.log_prob(x.iloc[np.zeros(len(both), int)], mean + sd * both))
    assert mass.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(mass @ both, 0.0, atol=1e-4)
    np.testing.assert_allclose(mass @ both**2, 1.0, rtol=1e-3)


def test_probabilities_of_counts_have_the_predicted_moments_and_quantiles(fitted):
    case = fitted("counts")
    for row in ROWS:
        x, y = case.X[[row]], np.arange(400)
        p = np.exp(case.model.log_prob(np.repeat(x, len(y), axis=0), y))
        mean, sd = (float(values[0]) for values in case.model.predict(x, return_std=True))
        assert p.sum() == pytest.approx(1.0, abs=1e-6)
        assert p @ y == pytest.approx(mean, rel=1e-5)
        assert p @ (y - mean) ** 2 == pytest.approx(sd**2, rel=1e-4)
        levels = np.array([0.05, 0.5, 0.95])
        expected = np.searchsorted(np.cumsum(p), levels)
        np.testing.assert_array_equal(case.model.predict_quantiles(x, levels)[0], expected)


@regressors
def test_the_law_is_the_mixture_of_its_components(case):
    X, _ = case.rows(*range(20))
    means, variances, weights = case.model.predict_components(X, return_weights=True)
    mean, sd = case.model.predict(X, return_std=True)
    assert weights.sum() == pytest.approx(1.0) and (weights > 0).all() and (variances > 0).all()
    mixed = np.tensordot(weights, means, 1)
    spread = np.tensordot(weights, variances + (means - mixed) ** 2, 1)
    np.testing.assert_allclose(mixed, mean, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(spread), sd, rtol=1e-7)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_the_density_is_the_mean_over_normal_components(case):
    """Targets are independent given a component. The mean of the logarithms is never larger."""
    X, y = case.rows(*range(20))
    means, variances, weights = case.model.predict_components(X, return_weights=True)
    log_density = stats.norm.logpdf(np.asarray(y), means, np.sqrt(variances))
    log_density = log_density.sum(-1) if case.name == "two_targets" else log_density
    density, logs = (case.model.log_prob(X, y, average=average) for average in ("density", "log"))
    np.testing.assert_allclose(density, np.log(weights @ np.exp(log_density)), rtol=1e-9, atol=1e-10)
    assert (logs <= density + 1e-10).all()
    if case.name == "flow":  # each sample path is one component
        np.testing.assert_allclose(logs, weights @ log_density, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", REGRESSORS)
def test_draws_come_from_the_law(case):
    """Up to errors of 2,000 draws, and of a law of five sample paths where draws have new ones."""
    n = 2000
    X, _ = case.rows(*ROWS)
    mean, sd = case.model.predict(X, return_std=True)
    draws = case.model.sample_y(X, n, random_state=1)
    assert draws.shape == (*mean.shape, n)
    np.testing.assert_allclose((draws.mean(-1) - mean) / sd, 0.0, atol=0.12)
    np.testing.assert_allclose(draws.std(-1), sd, rtol=0.1)
    quantiles = np.moveaxis(case.model.predict_quantiles(X, LEVELS), -1, 0)[..., None]
    for level, quantile in zip(LEVELS, quantiles, strict=True):
        assert ((draws < quantile).mean(-1) < level + 0.05).all()
        assert ((draws <= quantile).mean(-1) > level - 0.05).all()
    if case.has_counts:
        assert (draws == np.round(draws)).all() and (draws >= 0).all()


@regressors
def test_draws_follow_their_seed(case):
    X, _ = case.rows(*ROWS)
    one, again, other = (case.model.sample_y(X, 3, random_state=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@regressors
def test_intervals_are_quantiles_and_quantiles_increase(case):
    quantiles = case.model.predict_quantiles(case.X, LEVELS)
    np.testing.assert_allclose(case.model.predict_interval(case.X, 0.8), quantiles[..., [0, 2]], rtol=1e-12)
    assert (np.diff(quantiles, axis=-1) >= (0.0 if case.has_counts else 1e-12)).all()
    backwards = case.model.predict_quantiles(case.X, LEVELS[::-1])
    np.testing.assert_allclose(backwards[..., ::-1], quantiles, rtol=1e-12)


@regressors
def test_the_covariance_of_rows_has_the_predicted_variances(case):
    X, _ = case.rows(*ROWS)
    mean, covariance = case.model.predict(X, return_cov=True)
    expected, sd = case.model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, expected)
    by_target = np.moveaxis(covariance.reshape(len(X), len(X), -1), -1, 0)
    for block, own in zip(by_target, targets(sd).T, strict=True):
        np.testing.assert_allclose(np.diag(block), own**2, rtol=1e-9)
        np.testing.assert_allclose(block, block.T, rtol=1e-12)
        assert np.linalg.eigvalsh(block).min() > -1e-9 * own.max() ** 2


@regressors
def test_a_frame_of_predictions_holds_the_same_numbers(case):
    X, _ = case.rows(*range(9))
    table = case.model.predict_frame(X, LEVELS)
    mean, sd = (targets(values) for values in case.model.predict(X, return_std=True))
    quantiles = case.model.predict_quantiles(X, LEVELS).reshape(len(X), -1, 3)
    names = ["force", "strain"] if case.name == "two_targets" else ["y"]
    assert len(table.columns) == 5 * len(names)
    for i, target in enumerate(names):
        expected = np.column_stack([mean[:, i], sd[:, i], quantiles[:, i]])
        columns = [f"{target}_{what}" for what in ("mean", "sd", "q10", "q50", "q90")]
        np.testing.assert_array_equal(table[columns].to_numpy(), expected)
    if case.name == "two_targets":
        pd.testing.assert_index_equal(table.index, X.index)


@regressors
@pytest.mark.filterwarnings("ignore::UserWarning")  # of intervals that are too narrow
def test_a_diagnosis_counts_what_the_intervals_hold(case):
    found = case.model.diagnose(case.X, case.y)
    y, mean = targets(case.y), targets(case.model.predict(case.X))
    low, high = np.moveaxis(case.model.predict_interval(case.X, 0.8).reshape(len(y), -1, 2), -1, 0)
    assert found.coverage[0.8] == pytest.approx(np.mean((low <= y) & (y <= high)), abs=0.5 / y.size)
    assert found.width[0.8] == pytest.approx(np.mean(high - low))
    assert found.rmse == pytest.approx(np.sqrt(np.mean((y - mean) ** 2)))
    assert found.log_density == pytest.approx(case.model.log_prob(case.X, case.y).mean())


def test_class_probabilities_are_a_distribution(fitted):
    case = fitted("classes")
    p = case.model.predict_proba(case.X)
    assert p.shape == (build.N_ROWS, 3) and (p >= 0.0).all()
    np.testing.assert_allclose(p.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(case.model.classes_, np.unique(case.y))
    np.testing.assert_array_equal(case.model.predict(case.X), case.model.classes_[p.argmax(1)])
    np.testing.assert_allclose(case.model.predict_log_proba(case.X), np.log(p), rtol=1e-12)
    own = p[np.arange(len(p)), np.searchsorted(case.model.classes_, case.y)]
    np.testing.assert_allclose(case.model.log_prob(case.X, case.y), np.log(own), rtol=1e-6)
    assert case.model.score(case.X, case.y) == np.mean(case.model.predict(case.X) == case.y) > 0.6
    table = case.model.predict_frame(case.X)
    np.testing.assert_array_equal(table[["p_high", "p_low", "p_middle"]], p)
    np.testing.assert_array_equal(table["y_class"], case.model.predict(case.X))


# --- rows ----------------------------------------------------------------------------------------


@every
def test_the_order_of_rows_does_not_matter(case):
    order = np.random.default_rng(0).permutation(build.N_ROWS)
    expected = {key: values[order] for key, values in numbers(case.model, case.X, case.y).items()}
    same(numbers(case.model, *case.rows(*order)), expected, rtol=1e-9)


@every
def test_a_row_does_not_depend_on_the_rows_beside_it(case):
    whole = numbers(case.model, case.X, case.y)
    for which in ([7], [7, 7, 7], range(3, 30)):
        expected = {key: values[list(which)] for key, values in whole.items()}
        same(numbers(case.model, *case.rows(*which)), expected, rtol=1e-9)


@every
def test_results_are_finite_however_far_a_row_is(case):
    X, y = case.rows(0, 0, 0)
    far = X + np.array([[1e2], [-1e6], [1e15]]) * np.array([1.0, 20.0])
    found = numbers(case.model, far, y)
    assert all(np.isfinite(values).all() for values in found.values() if values.dtype.kind == "f")
    if not case.has_classes:
        assert (found["sd"] > 0.0).all()
        assert np.isfinite(case.model.sample_y(far, 3)).all()


@every
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_inputs_that_are_not_finite_are_refused(case, value):
    X, y = case.rows(*ROWS)
    with pytest.raises(wf.errors.DataError):
        case.model.predict(bad(X, value))
    with pytest.raises(wf.errors.DataError):
        case.model.log_prob(bad(X, value), y)
    with pytest.raises(wf.errors.DataError):
        case.copy().fit(bad(case.X, value), case.y)


@every
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_another_number_of_columns_is_refused(case):
    X = np.asarray(case.X)
    for wrong in (X[:, :1], np.column_stack([X, X]), X[:, 0], X[None], X[:, :0], X[:0]):
        with pytest.raises(ValueError):
            case.model.predict(wrong)


@every
def test_targets_that_do_not_fit_are_refused(case):
    nan = None if case.has_classes else bad(case.y.astype(float), np.nan)
    wrong = [np.asarray(case.y)[:-1], np.column_stack([case.y, case.y, case.y])]
    wrong += [np.full(build.N_ROWS, "none") if case.has_classes else -1.0 - case.y if case.has_counts else nan]
    for y in wrong:
        with pytest.raises(ValueError):
            case.model.log_prob(case.X, y)
    for y in (wrong[0], *([] if case.has_classes else [wrong[2]])):
        with pytest.raises(wf.errors.DataError):
            case.copy().fit(case.X, y)


@every
def test_a_model_that_is_not_fitted_says_so(name):
    estimator, X, y = CASES[name]()
    for call in (lambda: estimator.predict(X), lambda: estimator.log_prob(X, y), estimator.summary):
        with pytest.raises(NotFittedError):
            call()


# --- frames and arrays ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_frames_and_arrays_agree(fitted):
    case = fitted("two_targets")
    X, y = case.X.to_numpy(), case.y.to_numpy()
    expected = numbers(case.model, case.X, case.y)
    same(numbers(case.model, X, y), expected)
    same(numbers(case.model, X.tolist(), y.tolist()), expected)
    same(numbers(case.model, np.asfortranarray(X), np.asfortranarray(y)), expected)
    assert case.model.feature_names_in_.tolist() == ["angle", "kelvin"]
    assert list(case.model.target_names_) == ["force", "strain"]


def test_columns_are_known_by_their_names(fitted):
    case = fitted("two_targets")
    for wrong in (case.X[["kelvin", "angle"]], case.X.rename(columns={"angle": "angel"}), case.X.assign(more=1.0)):
        with pytest.raises(ValueError):
            case.model.predict(wrong)


def test_a_fit_to_a_frame_is_that_to_its_array(fitted):
    """The index of a frame is no data."""
    case = fitted("gp")
    X = pd.DataFrame(case.X, columns=["angle", "kelvin"], index=np.arange(build.N_ROWS)[::-1])
    model = build.sparse_gp().fit(X, pd.Series(case.y, name="force"))
    same(numbers(model, X, case.y), numbers(case.model, case.X, case.y))
    assert model.predict_frame(X).columns[0] == "force_mean"


# --- the same model ------------------------------------------------------------------------------


@every
def test_a_saved_model_is_the_same(case, tmp_path):
    X, _ = case.rows(*ROWS)
    case.model.save(tmp_path / "model")
    loaded = wf.load(tmp_path / "model")
    assert type(loaded) is type(case.model)
    assert str(loaded.get_params()) == str(case.model.get_params())
    same(numbers(loaded, case.X, case.y), numbers(case.model, case.X, case.y))
    assert loaded.summary() == case.model.summary()
    if not case.has_classes:
        np.testing.assert_array_equal(loaded.sample_y(X, 3), case.model.sample_y(X, 3))


@every
@pytest.mark.parametrize("through", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "copy"])
def test_a_copied_model_is_the_same(case, through):
    same(numbers(through(case.model), case.X, case.y), numbers(case.model, case.X, case.y))


@every
def test_a_clone_has_the_options_but_no_fit(case):
    other = clone(case.model)
    assert other.get_params() == case.model.get_params()
    assert not [key for key in vars(other) if key.endswith("_")]


def test_a_fit_can_be_repeated_bit_by_bit(fitted):
    """A clone, fitted to the same rows with the same seed; for other cases fits that resume and fits to frames."""
    case = fitted("mixed")
    again = clone(case.model).fit(case.X, case.y)
    same(numbers(again, case.X, case.y), numbers(case.model, case.X, case.y))
    assert again.status_ == case.model.status_


# --- fits that do not come to their end ----------------------------------------------------------


@every
def test_a_refit_to_bad_data_leaves_the_model(case):
    model, before = case.copy(), numbers(case.model, case.X, case.y)
    wider = np.column_stack([case.X, case.X])
    for X, y in ((bad(wider, np.nan), case.y), (wider, case.y[:-1])):
        with pytest.raises(wf.errors.DataError):
            model.fit(X, y)
    same(numbers(model, case.X, case.y), before)


@pytest.mark.parametrize(("name", "error"), [("gp", KeyboardInterrupt()), ("flow", RuntimeError("stop"))])
def test_a_refit_that_stops_in_training_leaves_the_model(case, error):
    model, before = build.watched(case.copy(), Stop(error)), numbers(case.model, case.X, case.y)
    with pytest.raises(type(error)):
        model.fit(np.asarray(case.X) * 5.0 + 100.0, case.y[::-1])
    same(numbers(model, case.X, case.y), before)


@pytest.mark.parametrize("name", ["flow", "counts"])
def test_an_interrupted_fit_resumes_bit_by_bit(case, tmp_path):
    """It does not begin anew, and ends as if it had not been interrupted."""
    first, second = (build.checkpointed(clone(case.model), tmp_path) for _ in range(2))
    count, n_reports = Count(), int(np.ceil(case.model.history_.groupby("phase").size() / 100).sum())
    with pytest.raises(KeyboardInterrupt):
        build.watched(first, Stop(KeyboardInterrupt(), report=n_reports)).fit(case.X, case.y)
    assert not [key for key in vars(first) if key.endswith("_")]
    build.watched(second, count).fit(case.X, case.y)
    assert 0 < count.n < n_reports
    same(numbers(second, case.X, case.y), numbers(case.model, case.X, case.y))
    assert second.n_iter_ == case.model.n_iter_


# --- what a fit does not depend on ---------------------------------------------------------------


@pytest.mark.parametrize(("name", "rtol"), [("gp", 1e-7), ("flow", 1e-3)])
def test_units_do_not_matter(case, rtol):
    """Of inputs and of targets: predictions are those in the other units."""
    unit, origin = 1e-4, 7.0
    model = clone(case.model).fit(case.X * [1e3, 1e-3] - [5.0, 0.1], case.y * unit + origin)
    X = case.X * [1e3, 1e-3] - [5.0, 0.1]
    mean, sd = case.model.predict(case.X, return_std=True)
    other_mean, other_sd = model.predict(X, return_std=True)
    np.testing.assert_allclose((other_mean - origin) / unit, mean, atol=rtol * np.ptp(mean))
    np.testing.assert_allclose(other_sd / unit, sd, rtol=rtol)
    expected = case.model.log_prob(case.X, case.y) - np.log(unit)
    np.testing.assert_allclose(model.log_prob(X, case.y * unit + origin), expected, atol=10 * rtol)


def test_other_names_of_labels_permute_the_classes(fitted):
    """Labels are sorted: with others, the columns of the probabilities are in another order."""
    case = fitted("classes")
    names = {"high": 3, "low": 1, "middle": 2}
    model = clone(case.model).fit(case.X, np.array([names[label] for label in case.y]))
    order = [names[label] - 1 for label in case.model.classes_]
    p, expected = model.predict_proba(case.X)[:, order], case.model.predict_proba(case.X)
    np.testing.assert_allclose(p, expected, atol=0.1)
    assert np.abs(p - expected).mean() < 0.02


@pytest.mark.parametrize("are_named", [False, True])
def test_copies_of_rows_do_not_narrow_intervals(are_named):
    """Equal rows are one group by themselves; nearly equal ones where they are named."""
    n, n_copies = build.N_ROWS // 5, 5
    X, y = (np.repeat(part, n_copies, axis=0) for part in build.real(1, n))
    X = X + 1e-6 * np.random.default_rng(0).normal(size=X.shape) if are_named else X
    groups = np.repeat(np.arange(n), n_copies) if are_named else None
    model = build.sparse_gp(n_inducing=n, max_iter=100).fit(X, y, groups=groups)
    X, y = build.real(2, 500)
    low, high = model.predict_interval(X, 0.9).T
    assert np.mean((low <= y) & (y <= high)) > 0.7


# --- frozen numbers ------------------------------------------------------------------------------

# Few steps in float64. The others take many stochastic steps, flows in float32: rounding differs between processors.
EXACT = ("gp", "two_targets", "members")


@every
def test_numbers_are_as_before(case):
    expected = json.loads(frozen.FILE.read_text())[case.name]
    found = frozen.described(case.model, case.X, case.y)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        rtol = 1e-8 if case.name in EXACT else 2e-3
        np.testing.assert_allclose(found[key], values, rtol=rtol, atol=rtol, err_msg=key)
