"""scikit-learn's own checks of estimators, and the company they must keep: pipelines, searches, clones, frames."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator
from small import ESTIMATORS, SMALL, SMALL_CLASSES, SMALL_GP

import wishflow as wf
from wishflow.metrics import log_prob_scorer
from wishflow.regression import prediction
from wishflow.regression import training as rows

# One by one, with settings that are quick, and all with one number of rows: all checks of the sparse GP, and of the
# flows, which share its base, those that are about classes or about the state of an estimator. The defaults have all.
CHECKED = (
    wf.SparseGPRegressor(**SMALL_GP),
    wf.FlowRegressor(diffusion="none", **SMALL),
    wf.FlowClassifier(diffusion="none", **SMALL_CLASSES),
)
OF_FLOWS = ("check_classifiers_train", "check_classifiers_one_label", "check_fit_idempotent", "check_dict_unchanged")


def checks_of(estimator):
    for _, check in estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if isinstance(estimator, wf.SparseGPRegressor) or name in OF_FLOWS:
            yield pytest.param(estimator, check, id=f"{type(estimator).__name__}-{name}")


@pytest.fixture
def one_size(monkeypatch):
    monkeypatch.setattr(rows, "size_class", lambda n: 256)
    monkeypatch.setattr(prediction, "_block_size", lambda n: 256)


@pytest.mark.slow
@pytest.mark.parametrize("estimator, check", [check for estimator in CHECKED for check in checks_of(estimator)])
@pytest.mark.filterwarnings("ignore:training of model .* diverged:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the fit explains nothing")  # some checks have targets without any signal
def test_scikit_learn_checks_with_small_settings(estimator, check, one_size):
    check(estimator)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "estimator",
    # Flows are trained for less long than by default: `python -m studies.benchmarks.checks` has the defaults.
    [
        wf.SparseGPRegressor(),
        pytest.param(wf.FlowRegressor(max_iter=100), marks=pytest.mark.long),
        pytest.param(wf.FlowClassifier(max_iter=100), marks=pytest.mark.long),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.filterwarnings("ignore:training of model .* diverged:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:the fit explains nothing")  # some checks have targets without any signal
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_checks_with_defaults_and_no_expected_failure(estimator):
    results = check_estimator(estimator, on_fail="raise")
    assert {r["status"] for r in results} <= {"passed", "skipped"}
    # What scikit-learn itself skips needs packages or settings of the process that have nothing to do with us.
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    assert not any(r["expected_to_fail"] for r in results)


def test_kinds():
    assert is_regressor(wf.SparseGPRegressor())
    assert is_regressor(wf.FlowRegressor())
    assert is_classifier(wf.FlowClassifier())


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_clone_has_the_options_and_nothing_learnt(estimator, X, y, labels):
    target = labels if is_classifier(estimator) else y
    fitted = clone(estimator).fit(X, target)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not [name for name in vars(fresh) if name.endswith("_")]


@pytest.mark.parametrize("name", ["gp", "flow", "classifier"])
def test_pickles_and_copies_predict_the_same_numbers(name, X, request):
    fitted = request.getfixturevalue(name)
    predict = "predict_proba" if is_classifier(fitted) else "predict"
    expected = getattr(fitted, predict)(X)
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert np.array_equal(getattr(twin, predict)(X), expected)


def test_pipeline(X, y, gp):
    """Scaling beforehand changes nothing: the estimators scale by themselves."""
    pipeline = make_pipeline(StandardScaler(), wf.SparseGPRegressor(**SMALL_GP)).fit(X, y)
    np.testing.assert_allclose(pipeline.predict(X), gp.predict(X), rtol=1e-6)
    np.testing.assert_allclose(log_prob_scorer(pipeline, X, y), gp.log_prob(X, y).mean(), rtol=1e-5)


def test_grid_search_by_log_density_takes_the_better_model(X, y):
    """Forty iterations beat a single one."""
    search = GridSearchCV(wf.SparseGPRegressor(n_inducing=10), {"max_iter": [1, 40]}, scoring=log_prob_scorer, cv=2)
    search.fit(X, y)
    assert search.best_params_ == {"max_iter": 40}
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(log_prob_scorer(search, X, y), search.best_estimator_.log_prob(X, y).mean())


def test_frames_keep_their_names(X, y):
    frame = pd.DataFrame(X, columns=["width", "height"])
    fitted = wf.SparseGPRegressor(**SMALL_GP).fit(frame, pd.Series(y, name="price"))
    assert fitted.feature_names_in_.tolist() == ["width", "height"]
    assert np.array_equal(fitted.predict(frame), wf.SparseGPRegressor(**SMALL_GP).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["height", "width"]])
    with pytest.warns(UserWarning, match="valid feature names"):
        fitted.predict(X)


def test_frames_of_targets(X, Y, flow_of_two):
    """A frame of targets is scored like an array of them."""
    frame = pd.DataFrame(Y, columns=["a", "b"])
    assert np.array_equal(flow_of_two.log_prob(X, frame), flow_of_two.log_prob(X, Y))


def test_score_is_r_squared(X, y, gp):
    residual = y - gp.predict(X)
    np.testing.assert_allclose(gp.score(X, y), 1 - (residual**2).sum() / ((y - y.mean()) ** 2).sum())
