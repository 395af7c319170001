"""Data and options that cannot be used get an error that says so; odd data that can be used give finite numbers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from small import ESTIMATORS, SMALL, SMALL_CLASSES, SMALL_GP

import wishflow as wf
from wishflow.errors import DataError, DataTypeError, OptionError

# What users give is refused by the library itself, with types checked or not.
pytestmark = pytest.mark.usefixtures("types_unchecked")

REGRESSORS = ESTIMATORS[:2]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
every_regressor = pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda e: type(e).__name__)


def all_predictions(fitted, X, y) -> list[np.ndarray]:
    """Everything an estimator can say of rows."""
    if is_classifier(fitted):
        return [
            fitted.predict_proba(X),
            fitted.predict_log_proba(X),
            fitted.log_prob(X, y),
            fitted.log_prob(X, y, "log"),
        ]
    numbers = [*fitted.predict(X, return_std=True), fitted.predict(X, return_cov=True)[1]]
    numbers += [fitted.predict_interval(X), fitted.log_prob(X, y), fitted.log_prob(X, y, "log")]
    return [*numbers, fitted.sample_y(X, 3)]


def assert_all_finite(fitted, X, y):
    assert all(np.isfinite(part).all() for part in all_predictions(fitted, X, y))


# --- data that are refused -------------------------------------------------------------------


@every_estimator
@pytest.mark.parametrize("bad, words", [(np.nan, "contains NaN"), (np.inf, "contains infinity")])
def test_nan_and_infinity_in_inputs(estimator, bad, words, X, y, labels):
    target = labels if is_classifier(estimator) else y
    broken = X.copy()
    broken[3, 1] = bad
    with pytest.raises(ValueError, match=f"Input X {words}"):
        clone(estimator).fit(broken, target)


@every_regressor
@pytest.mark.parametrize("bad, words", [(np.nan, "contains NaN"), (np.inf, "contains infinity")])
def test_nan_and_infinity_in_targets(estimator, bad, words, X, y):
    broken = y.copy()
    broken[3] = bad
    with pytest.raises(ValueError, match=f"Input y {words}"):
        clone(estimator).fit(X, broken)


def test_nan_in_labels(X):
    with pytest.raises(ValueError, match="Input y contains NaN"):
        wf.FlowClassifier(**SMALL_CLASSES).fit(X, np.where(X[:, 0] > 0, 1.0, np.nan))


@pytest.mark.parametrize("method", ["predict", "predict_interval", "sample_y", "mean_covariance", "flow_paths"])
def test_nan_in_rows_to_predict(method, flow, X):
    with pytest.raises(ValueError, match="Input X contains NaN"):
        getattr(flow, method)(np.full_like(X, np.nan))


def test_targets_that_cannot_be_scored(flow, flow_of_two, X, y, Y):
    with pytest.raises(ValueError, match="Input y contains NaN"):
        flow.log_prob(X, np.full(len(X), np.nan))
    with pytest.raises(DataError, match="X has 30 rows and y has 29"):
        flow.log_prob(X, y[1:])
    with pytest.raises(DataError, match=r"shape \(30, 2\).*fitted to 1 target"):
        flow.log_prob(X, Y)
    with pytest.raises(DataError, match=r"shape \(30, 1\).*fitted to 2 target"):
        flow_of_two.log_prob(X, y)


def test_labels_that_cannot_be_scored(classifier, X, labels):
    with pytest.raises(DataError, match=r"'middle'.*not in the training data.*'high', 'low'"):
        classifier.log_prob(X, ["middle", *labels[1:]])
    with pytest.raises(DataError, match="X has 30 rows and y has 29"):
        classifier.log_prob(X, labels[1:])


@every_estimator
def test_one_row(estimator, X):
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 2"):
        clone(estimator).fit(X[:1], [1])


@every_estimator
def test_lengths_that_differ(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[30, 29\]"):
        clone(estimator).fit(X, target[1:])


@every_estimator
def test_text_where_numbers_belong(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    frame = pd.DataFrame({"size": X[:, 0], "colour": "red"})
    with pytest.raises(DataError, match=r"column 'colour' of X holds text .*red.*OneHotEncoder"):
        clone(estimator).fit(frame, target)


@every_regressor
def test_text_targets(estimator, X, labels):
    with pytest.raises(DataError, match=r"y holds text, such as .*expected numbers: use FlowClassifier"):
        clone(estimator).fit(X, labels)


@every_estimator
def test_complex_and_flat_inputs(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    with pytest.raises(ValueError, match="Complex data not supported"):
        clone(estimator).fit(X + 1j, target)
    with pytest.raises(ValueError, match=r"(?s)Expected 2D array, got 1D array.*Reshape"):
        clone(estimator).fit(X[:, 0], target)


TIMES_AS_OBJECTS = {
    "stamps of NumPy": lambda n: list(pd.date_range("2024", periods=n).values),
    "spans of NumPy": lambda n: list(pd.timedelta_range("1h", periods=n).values),
    "an array of stamps as objects": lambda n: np.array([*pd.date_range("2024", periods=n).values, 1.0], object)[:n],
    "stamps of pandas": lambda n: list(pd.date_range("2024", periods=n)),
}


@pytest.mark.parametrize("times", TIMES_AS_OBJECTS.values(), ids=TIMES_AS_OBJECTS)
def test_times_among_objects_are_no_numbers(times, X, y):
    """NumPy reads its own stamps and spans as integers, whatever they are wrapped in."""
    values = times(len(X))
    column = [[value] for value in values]
    for call in (
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(X, values),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(column, y),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(pd.DataFrame({"t": pd.Series(values, dtype=object)}), y),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(X[:, :1], y).predict(column),
    ):
        with pytest.raises(DataError, match=r"holds values of type .*take the time since a first stamp"):
            call()


def test_complex_numbers_among_objects(X, y):
    """Their imaginary part would be dropped."""
    with pytest.raises(DataTypeError, match="y holds complex numbers"):
        wf.SparseGPRegressor(**SMALL_GP).fit(X, np.array([*y[1:], 1j], object))
    with pytest.raises(DataTypeError, match="column 'b' of X holds complex numbers"):
        wf.SparseGPRegressor(**SMALL_GP).fit(pd.DataFrame(X, columns=["a", "b"]).astype({"b": object}) * [1, 1j], y)
    repeated = pd.DataFrame(X[:, [0, 0, 1]], columns=["a", "b", "c"]).astype({"c": object}) * [1, 1, 1j]
    with pytest.raises(DataTypeError, match="column 'c' of X holds complex numbers"):
        wf.SparseGPRegressor(**SMALL_GP).fit(repeated.set_axis(["a", "a", "c"], axis=1), y)


def test_masked_arrays_in_a_list(X, y):
    with pytest.raises(DataError, match="list of masked arrays with 30 masked entries"):
        wf.SparseGPRegressor(**SMALL_GP).fit([np.ma.array(row, mask=[True, False]) for row in X], y)


@every_regressor
def test_whole_numbers_beyond_a_double(estimator, X, y):
    with pytest.raises(DataError, match="number beyond"):
        clone(estimator).fit(X, [10**400, *y[1:]])
    with pytest.raises(DataError, match="number beyond"):
        clone(estimator).fit([[10**400, 1.0], *X[1:].tolist()], y)


@pytest.mark.parametrize("dtype", ["string", "category", "str"])
def test_missing_labels_of_pandas(dtype, X, labels):
    with pytest.raises(DataError, match="1 of 30 labels are missing"):
        wf.FlowClassifier(**SMALL_CLASSES).fit(X, pd.Series([None, *labels[1:]], dtype=dtype))


def test_groups_that_are_no_labels(X, y):
    with pytest.raises(DataError, match="groups holds what is no label"):
        wf.SparseGPRegressor(**SMALL_GP).fit(X, y, groups=np.array([{} for _ in y], object))


def test_errors_of_scikit_learn_are_ours(flow, X, y):
    """Whoever catches `WishflowError` catches all that data can do."""
    for call in (
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(X[:1], y[:1]),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(X + 1j, y),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(np.full_like(X, np.inf), y),
        lambda: wf.FlowClassifier(**SMALL_CLASSES).fit(X, y),
        lambda: flow.predict(X[:, :1]),
        lambda: flow.log_prob(X, np.full(len(X), np.nan)),
    ):
        with pytest.raises(DataError):
            call()


def test_another_number_of_columns(flow, X):
    with pytest.raises(ValueError, match="X has 1 features, but FlowRegressor is expecting 2"):
        flow.predict(X[:, :1])


def test_one_class_and_continuous_labels(X, y):
    with pytest.raises(DataError, match=r"one class only.*at least two"):
        wf.FlowClassifier(**SMALL_CLASSES).fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        wf.FlowClassifier(**SMALL_CLASSES).fit(X, y)


def test_counts_that_are_none(X, y):
    regressor = wf.SparseGPRegressor(likelihood="poisson", **SMALL_GP)
    with pytest.raises(DataError, match="expected non-negative whole numbers"):
        regressor.fit(X, y)


def test_numbers_beyond_a_double(X, y):
    wide = X.copy()
    wide[:, 1], wide[0, 1] = 1.7e308, -1.7e308
    with pytest.raises(DataError, match=r"column 1 of X spans -1.7e\+308 to 1.7e\+308.*divide"):
        wf.SparseGPRegressor(**SMALL_GP).fit(wide, y)


@pytest.mark.parametrize("cls", [wf.SparseGPRegressor, wf.FlowRegressor, wf.FlowClassifier])
def test_predicting_before_a_fit(cls, X):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError, match="Call 'fit'"):
        cls().predict(X)
    with pytest.raises(NotFittedError, match="Call 'fit'"):
        cls().save("model.safetensors")


# --- odd data that work ----------------------------------------------------------------------


@every_estimator
def test_fewer_rows_than_inducing_points(estimator, X, y, labels):
    rows = np.r_[0:6]
    target = np.array([0, 1, 0, 1, 0, 1]) if is_classifier(estimator) else y[rows]
    fitted = clone(estimator).fit(X[rows], target)
    assert_all_finite(fitted, X[rows], target)


@every_estimator
def test_two_rows(estimator, X):
    assert_all_finite(clone(estimator).fit(X[:2], [0, 1]), X[:2], [0, 1])


@every_regressor
def test_constant_target(estimator, X):
    """The model says the constant, and is sure of it."""
    fitted = clone(estimator).set_params(max_iter=50).fit(X, np.full(len(X), 7e5))
    assert_all_finite(fitted, X, np.full(len(X), 7e5))
    np.testing.assert_allclose(fitted.predict(X), 7e5, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:the fit explains nothing")
@every_estimator
def test_duplicated_rows_and_constant_columns(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    odd = np.column_stack([np.repeat(X[:6, 0], 5), np.full(len(X), 1e9 / 3)])
    fitted = clone(estimator).fit(odd, target)
    assert_all_finite(fitted, odd, target)
    other = odd + np.array([0.0, 1.0])  # a value that the constant column never had
    assert_all_finite(fitted, other, target)


@pytest.mark.filterwarnings("ignore:the fit explains nothing")
@every_estimator
def test_rows_that_are_all_the_same(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    same = np.repeat(X[:1], len(X), axis=0)
    assert_all_finite(clone(estimator).fit(same, target), same, target)


@pytest.mark.filterwarnings("ignore:the fit explains nothing")
@every_estimator
def test_rows_that_nearly_coincide(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    close = np.repeat(X[:3], 10, axis=0) * (1 + 1e-13 * np.arange(30)[:, None])
    assert_all_finite(clone(estimator).fit(close, target), close, target)


@every_regressor
@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e30, 1e150])
def test_units_do_not_matter(estimator, factor, X, y):
    """Predictions are those in ordinary units, times the factor."""
    plain = clone(estimator).fit(X, y).predict(X)
    scaled = clone(estimator).fit(X * factor, y * factor).predict(X * factor) / factor
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


@every_estimator
def test_rows_far_away(estimator, X, y, labels):
    """The prior is what is left there."""
    target = labels if is_classifier(estimator) else y
    fitted = clone(estimator).fit(X, target)
    far = np.vstack([X[:2], [[1e6, -1e6], [1e300, 1e300], [-1e308, 1e308]]])
    assert_all_finite(fitted, far, target[:5])
    if not is_classifier(estimator):
        np.testing.assert_allclose(fitted.predict(far)[2:], y.mean(), atol=1e-6 * y.std())


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, bool, object])
def test_other_number_types(dtype, X, y):
    inputs = (X > 0).astype(dtype) if dtype is bool else np.abs(X).astype(dtype)
    fitted = wf.SparseGPRegressor(**SMALL_GP).fit(inputs, y.astype(np.float32))
    assert fitted.predict(inputs).dtype == np.float64
    assert_all_finite(fitted, inputs, y)


# --- options ---------------------------------------------------------------------------------

NOT_COUNTS = [0, -1, 2.5, "ten", True]
BAD_OPTIONS = {
    "n_inducing": [*NOT_COUNTS, None],
    "n_steps": NOT_COUNTS,
    "max_iter": NOT_COUNTS,
    "batch_size": NOT_COUNTS,
    "n_train_samples": NOT_COUNTS,
    "n_predict_samples": [*NOT_COUNTS, None],
    "rank": NOT_COUNTS,
    "columns": ["common", None],
    "diffusion": ["brownian", None, 3, wf.kernels.RBF()],
    "kernel": ["rfb", None, 3, wf.diffusions.Wishart()],
    "likelihood": ["normal", None, "bernoulli", "categorical", wf.kernels.RBF()],
    "flow_time": [-1.0, np.nan, np.inf, 10**400, "long", None, True],
    "state_dim": [*NOT_COUNTS, 1],
    "sampling": ["joint", None],
    "time_dependent": ["no", 1, None],
    "preset": ["slow", None, ["fast"]],
    "learning_rate": [0.0, -0.1, np.nan, 10**400, "fast", True],
    "path_average": ["mean", 3],
    "tol": [-1e-3, np.inf, "auto", True],
    "drift_posterior": ["map", None, 1],
    "validation_fraction": [-0.1, 1.0, np.nan, "a tenth", True],
    "random_state": [-1, 2**32, 0.5, "seed", True],
    "verbose": [-1, "yes", None],
    "callbacks": [3, ["log.csv"], wf.callbacks.EarlyStop],
    "n_members": [0, -1, 1.5, "two"],
    "calibrate": ["always", True, 1],
    "hyperprior": ["weak", True, 1],
    "checkpoint_dir": [3, "", ["a"]],
    "backend": ["locky", 3],
    "backend_params": [3, [("n_jobs", 2)]],
}


@every_estimator
def test_every_option_is_covered_here(estimator):
    assert set(estimator.get_params()) <= set(BAD_OPTIONS)


@pytest.mark.parametrize(
    "estimator, option, value",
    [(e, name, value) for e in ESTIMATORS for name in e.get_params() for value in BAD_OPTIONS[name]],
    ids=lambda v: type(v).__name__ if hasattr(v, "fit") else str(v),
)
def test_unknown_values(estimator, option, value, X, y, labels):
    """The message names the option, what came and what was expected."""
    target = labels if is_classifier(estimator) else y
    with pytest.raises(OptionError) as caught:
        clone(estimator).set_params(**{option: value}).fit(X, target)
    message = str(caught.value)
    assert message.startswith(option)
    assert "expected" in message or "use FlowClassifier" in message
    if option != "callbacks":
        assert repr(value) in message


@pytest.mark.parametrize("cls", [wf.SparseGPRegressor, wf.FlowRegressor, wf.FlowClassifier])
def test_unknown_names(cls):
    with pytest.raises(TypeError, match="n_inducin"):
        cls(n_inducin=10)
    with pytest.raises(ValueError, match=r"Invalid parameter 'n_inducin'.*Valid parameters are.*n_inducing"):
        cls().set_params(n_inducin=10)


def test_unknown_values_of_methods(flow, classifier, X, y, labels):
    with pytest.raises(OptionError, match="average='mean' is not known; expected one of 'density', 'log'"):
        flow.log_prob(X, y, average="mean")
    with pytest.raises(OptionError, match="average='mean'"):
        classifier.log_prob(X, labels, average="mean")
    for alpha in (0.0, 1.0, [0.5, 1.5], np.nan, "median", [[0.5]], []):
        with pytest.raises(OptionError, match=r"alpha=.*expected probabilities strictly between 0 and 1"):
            flow.predict_quantiles(X, alpha)
    for coverage in (0, 1, 90, [0.5, 0.9]):
        with pytest.raises(OptionError, match=r"coverage=.*expected"):
            flow.predict_interval(X, coverage)
    with pytest.raises(OptionError, match="return_std and return_cov were both asked for"):
        flow.predict(X, return_std=True, return_cov=True)
    with pytest.raises(OptionError, match="n_samples=0 given; expected"):
        flow.sample_y(X, 0)
    with pytest.raises(OptionError, match="random_state='a' given; expected"):
        flow.sample_y(X, 1, random_state="a")


def test_combinations_that_have_no_meaning(X, y):
    with pytest.raises(OptionError, match="sampling=\"pathwise\" is not available for the 'gp' diffusion"):
        wf.FlowRegressor(diffusion="gp", sampling="pathwise", **SMALL).fit(X, y)
    with pytest.raises(OptionError, match="active_dims"):
        wf.SparseGPRegressor(kernel=wf.kernels.RBF(active_dims=(2,)), **SMALL_GP).fit(X, y)


def test_a_failed_fit_leaves_no_fitted_estimator(X, y):
    from sklearn.exceptions import NotFittedError

    regressor = wf.SparseGPRegressor(**SMALL_GP)
    with pytest.raises(OptionError):
        regressor.set_params(kernel="none").fit(X, y)
    with pytest.raises(NotFittedError):
        regressor.predict(X)


def test_many_estimators_need_as_many_data(X, y):
    with pytest.raises(DataError, match="2 estimators and 1 data sets"):
        wf.fit_many([wf.SparseGPRegressor(), wf.SparseGPRegressor()], [(X, y)])
    assert wf.fit_many([], []) == []


# --- times, masks, labels of several kinds -------------------------------------------------------

DAYS = pd.date_range("2024-01-01", periods=30)
NO_NUMBERS = {
    "stamps": DAYS,
    "zones": DAYS.tz_localize("UTC"),
    "spans": DAYS - DAYS[0],
    "periods": DAYS.to_period("D"),
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_times_are_no_numbers(kind, gp, X, y):
    times = NO_NUMBERS[kind]
    for rows in (pd.DataFrame({"t": times}), pd.DataFrame({"t": times, "x": X[:, 0]})):
        with pytest.raises(DataError, match=r"column 't' of X holds values of type .* expected numbers"):
            wf.SparseGPRegressor(**SMALL_GP).fit(rows, y)
    with pytest.raises(DataError, match="of X holds values of type"):
        gp.predict(pd.DataFrame({"a": times, "b": times}))
    for targets in (pd.Series(times), pd.DataFrame({"a": y, "b": times})):
        with pytest.raises(DataError, match="y holds values of type"):
            wf.SparseGPRegressor(**SMALL_GP).fit(X, targets)


def test_an_array_of_stamps_and_objects(X, y):
    with pytest.raises(DataError, match="X holds values of type datetime64"):
        wf.SparseGPRegressor(**SMALL_GP).fit(np.asarray(DAYS)[:, None], y)
    with pytest.raises(DataError, match="X holds values of type datetime"):
        wf.SparseGPRegressor(**SMALL_GP).fit(np.array([[day.to_pydatetime()] for day in DAYS], object), y)


def test_a_frame_without_columns(y):
    with pytest.raises(DataError, match="X has no columns"):
        wf.SparseGPRegressor(**SMALL_GP).fit(pd.DataFrame(index=range(30)), y)


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_times_are_no_labels(kind, classifier, X):
    times = NO_NUMBERS[kind][[0, 1] * 15]
    forms = (times, pd.Series(times), pd.Series(times).astype("category"), list(times), pd.DataFrame({"y": times}))
    for labels in forms:
        with pytest.raises(DataError, match="y holds times"):
            wf.FlowClassifier(**SMALL_CLASSES).fit(X, labels)
    with pytest.raises(DataError, match="y holds the label"):
        classifier.log_prob(X, times)


@pytest.mark.parametrize("other", [1, None, np.nan])
def test_labels_of_several_kinds(other, X):
    with pytest.raises(DataError, match="labels of several types"):
        wf.FlowClassifier(**SMALL_CLASSES).fit(X, np.array(["a", other] * 15, object))


def test_masks_are_not_ignored(gp, X, y, labels):
    rows, targets = np.ma.masked_array(X, mask=False), np.ma.masked_array(y, mask=False)
    rows[3, 1] = targets[3] = np.ma.masked
    for work in (
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(rows, y),
        lambda: wf.SparseGPRegressor(**SMALL_GP).fit(X, targets),
        lambda: wf.FlowClassifier(**SMALL_CLASSES).fit(X, np.ma.masked_equal(labels == "low", True)),
        lambda: gp.predict(rows),
        lambda: gp.log_prob(X, targets),
    ):
        with pytest.raises(DataError, match="masked entries; expected a value everywhere"):
            work()
    wf.SparseGPRegressor(**SMALL_GP).fit(np.ma.masked_array(X, mask=False), y)  # hides nothing


def test_stamps_that_nanoseconds_cannot_count():
    values = np.random.default_rng(0).normal(size=(40, 1))
    stamps = np.datetime64("9000-01-01", "s") + np.arange(40).astype("m8[D]")
    for index in (pd.DatetimeIndex(stamps), pd.period_range("9000-01-01", periods=40, freq="D")):
        with pytest.raises(DataError, match="expected years from 1678 to 2261"):
            wf.WishartForecaster().fit(pd.DataFrame(values, index))
    last = pd.DataFrame(values, pd.date_range("2261-06-01", periods=40))
    model = wf.WishartForecaster(max_iter=2, n_inducing=5, rank=1, validation_fraction=0).fit(last)
    with pytest.raises(OptionError, match="64 bits cannot count"):
        model.predict(1000)


def test_masked_entries_of_series_are_missing():
    values = np.ma.masked_array(np.random.default_rng(0).normal(size=(40, 2)), mask=False)
    values[3, 1] = np.ma.masked
    model = wf.WishartForecaster(max_iter=2, n_inducing=5, rank=1, validation_fraction=0).fit(values)
    plain = values.filled(np.nan)
    other = wf.WishartForecaster(max_iter=2, n_inducing=5, rank=1, validation_fraction=0).fit(plain)
    pd.testing.assert_series_equal(model.log_prob(plain), other.log_prob(plain))
