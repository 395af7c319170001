"""Laws of class probabilities, and log losses against the truth and against scikit-learn's own Gaussian process."""

import functools

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small import SMALL_CLASSES

import wishflow as wf


@pytest.fixture(scope="module")
def thirds(y):
    """Three classes."""
    return np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, [1 / 3, 2 / 3]))]


@pytest.fixture(scope="module")
def of_three(X, thirds):
    return wf.FlowClassifier(**SMALL_CLASSES).fit(X, thirds)


@pytest.fixture(params=["classifier", "of_three"])
def fitted(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def target(fitted, labels, thirds):
    return labels if len(fitted.classes_) == 2 else thirds


def test_probabilities_are_probabilities(fitted, X):
    p = fitted.predict_proba(X)
    assert p.shape == (len(X), len(fitted.classes_))
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(p), rtol=1e-12)
    assert np.array_equal(fitted.predict(X), fitted.classes_[p.argmax(axis=1)])


def test_log_prob_is_the_log_of_the_probability_of_the_label(fitted, X, target):
    position = np.searchsorted(fitted.classes_, target)
    expected = np.log(fitted.predict_proba(X))[np.arange(len(X)), position]
    np.testing.assert_allclose(fitted.log_prob(X, target), expected, rtol=1e-8)
    assert (fitted.log_prob(X, target, average="log") <= fitted.log_prob(X, target) + 1e-12).all()


def test_one_row_or_all_rows_in_any_order_give_the_same_numbers(fitted, X, target):
    order = np.random.default_rng(1).permutation(len(X))
    for values in (
        lambda rows: fitted.predict_proba(X[rows]),
        lambda rows: fitted.log_prob(X[rows], target[rows]),
    ):
        together = values(np.arange(len(X)))
        np.testing.assert_allclose(values(order), together[order], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(values([7]), together[[7]], rtol=1e-9, atol=1e-9)


def test_same_seed_same_probabilities_other_seed_others(fitted, X, target):
    again = wf.FlowClassifier(**SMALL_CLASSES).fit(X, target)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    other = wf.FlowClassifier(random_state=1, **SMALL_CLASSES).fit(X, target)
    assert not np.allclose(other.predict_proba(X), fitted.predict_proba(X), rtol=1e-6)


def test_names_of_two_classes_can_be_swapped(classifier, X, labels):
    """The logistic link is symmetric: with the classes swapped every logit changes its sign, and nothing else."""
    swapped = np.where(labels == "high", "low", "high")
    p = wf.FlowClassifier(**SMALL_CLASSES).fit(X, swapped).predict_proba(X)
    np.testing.assert_allclose(p[:, ::-1], classifier.predict_proba(X), rtol=1e-6)


def test_log_loss_comes_near_that_of_the_truth():
    """Labels drawn with known probabilities: no classifier can expect less than their entropy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(1250, 2))
    p = 1 / (1 + np.exp(-4 * np.sin(2 * X[:, 0]) * X[:, 1]))
    y = rng.uniform(size=len(X)) < p
    model = wf.FlowClassifier(n_inducing=30, max_iter=300, n_steps=3, n_predict_samples=32).fit(X[:250], y[:250])
    truth = log_loss(y[250:], p[250:])
    found = log_loss(y[250:], model.predict_proba(X[250:]))
    assert truth < found < truth + 0.1 < log_loss(y[250:], np.full(1000, y[:250].mean())) - 0.1


def held_out(load, **size):
    X, y = load(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y, **size)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "load, size",
    [
        pytest.param(load_breast_cancer, {"test_size": 0.3}, id="breast_cancer"),
        pytest.param(
            functools.partial(load_digits, n_class=4), {"train_size": 300}, id="digits", marks=pytest.mark.long
        ),
    ],
)
def test_log_loss_is_no_worse_than_that_of_scikit_learn(load, size):
    """Defaults against `GaussianProcessClassifier` at its best: scaled inputs and a lengthscale that suits them."""
    X, X_test, y, y_test = held_out(load, **size)
    kernel = 1.0 * RBF(np.sqrt(X.shape[1]))
    theirs = make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0)).fit(X, y)
    ours = wf.FlowClassifier().fit(X, y)
    losses = [log_loss(y_test, model.predict_proba(X_test)) for model in (ours, theirs)]
    print("log loss, ours and theirs:", losses)
    assert losses[0] <= 1.05 * losses[1]
