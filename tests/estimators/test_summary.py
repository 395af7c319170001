"""What fitted estimators say of themselves: skipped steps, and a diffusion that has collapsed."""

import copy
import warnings
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

import wishflow as wf
from wishflow.regression import prediction
from wishflow.regression import summary as regression
from wishflow.series import summary as series
from wishflow.wishart.collapse import mean_variances

FILES = Path(__file__).parents[1] / "reference" / "v0.1.0"


def loaded(name):
    return wf.load(FILES / f"{name}.safetensors")


def collapsed(model):
    """The estimator with a kernel of its field whose variance is next to nothing."""
    found = copy.copy(model)
    found.model_ = eqx.tree_at(lambda m: m.field.basis.kernel.variance.raw, model.model_, np.asarray(-30.0))
    return found


@pytest.mark.parametrize("name", ["flow", "flow_diagonal", "flow_gp", "flow_structured"])
def test_the_size_of_a_diffusion_is_that_of_its_mean_covariance(name):
    model = loaded(name).model_
    rates = prediction.mean_covariance(model, np.asarray(model.field.basis.Z))
    expected = np.trace(rates, axis1=1, axis2=2).mean() / rates.shape[1]
    assert sum(mean_variances(model.field)) == pytest.approx(expected, rel=1e-6)
    sd = np.sqrt(model.flow_time * expected / float(np.asarray(model.likelihood.noise_summary())))
    assert regression.diffusion_ratio(model) == pytest.approx(sd, rel=1e-5)


@pytest.mark.parametrize("name", ["sgp", "flow_none", "flow_poisson", "classes_two"])
def test_without_diffusion_or_without_noise_there_is_nothing_to_compare(name):
    model = loaded(name)
    assert regression.diffusion_ratio(model.model_) is None
    assert model.summary().splitlines() == [
        f"{type(model).__name__}, 2 inputs, {model.n_iter_} iterations",
        f"status: {model.status_}",
    ]


def test_a_collapsed_diffusion_is_named_with_what_to_do(X, y, flow):
    assert "collapsed" not in flow.summary() and "times that of the observation noise" in flow.summary()
    dead = collapsed(flow)
    assert regression.diffusion_ratio(dead.model_) < 0.01 * regression.diffusion_ratio(flow.model_)
    assert "it has collapsed" in dead.summary() and "diffusion='none'" in dead.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit of five iterations may be over-confident
        found = flow.diagnose(X, y)
    assert found.diffusion_ratio == regression.diffusion_ratio(flow.model_)
    assert "diffusion: its standard deviation" in str(found)


@pytest.mark.parametrize("name", ["series", "latent"])
def test_forecasters_say_it_too(name):
    model = loaded(name)
    noise, white = mean_variances(model.model_.field)
    assert noise > 0.0 and white > 0.0
    if name == "series":  # white noise is that of observations
        assert series.diffusion_ratio(model.model_) == pytest.approx(np.sqrt(noise / white), rel=1e-5)
    assert "diffusion: its standard deviation" in model.summary() and "collapsed" not in model.summary()
    assert "diffusion='diagonal'" in collapsed(model).summary()


def test_skipped_steps_are_in_the_summary(gp):
    model = copy.copy(gp)
    model.history_ = gp.history_.assign(skipped=0.0)
    assert "skipped" not in model.summary()
    model.history_.loc[0, "skipped"] = 1.0
    assert f"1 of {len(gp.history_)} steps were not finite and were skipped" in model.summary()
