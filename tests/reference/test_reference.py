"""Model files of version 0.1.0 load, and give the numbers that version gave: structure may change, numbers may not."""

from __future__ import annotations

import numpy as np
import pytest

import wishflow as wf
from wishflow.regression.storage import present_name

from .cases import FORECASTING, REGRESSION
from .make import FOLDER, predicted, trained

# Sums in another order differ by rounding; on another processor so do factorisations, and five steps amplify that.
TOLERANCE = 1e-10
STEPS_TOLERANCE = 1e-7

QUICK = ("sgp", "flow", "series", "latent")
# Beside these, one of each kind of noise, of lags and of states; the others are long tests.
SOME = ("flow_gp", "flow_wide", "classes_three", "series_tails", "series_lags", "latent_gp")
# One of each kind of objective.
TRAINED = ("sgp", "sgp_poisson", "flow", "flow_gp", "flow_pathwise", "classes_three", "series", "latent")
ALL = (*REGRESSION, *FORECASTING)
# Since 0.2 forecasts of latent models have another key than their filter: other draws of the same law.
OTHER_DRAWS = {("latent", "forecast.None"), ("latent", "density.None")}
OTHER_DRAWS |= {("latent_gp", "forecast.None"), ("latent_gp", "density.None")}
SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", ALL)
def test_a_file_loads(name):
    estimator = {**REGRESSION, **FORECASTING}[name][0]
    loaded = wf.load(FOLDER / f"{name}.safetensors")
    assert type(loaded) is type(estimator) and loaded.n_iter_ > 0
    assert str(loaded.get_params()) == str(estimator.get_params())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [SLOW] if name in SOME else [SLOW, pytest.mark.long])
        for name in ALL
    ],
)
def test_a_loaded_model_predicts_as_before(name):
    compare(name, predicted(name, wf.load(FOLDER / f"{name}.safetensors")))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRAINED, pytest.param("series_lags", marks=pytest.mark.long)])
def test_objectives_gradients_and_steps_are_as_before(name):
    compare(name, trained(name, wf.load(FOLDER / f"{name}.safetensors")), STEPS_TOLERANCE)


def present(key: str) -> str:
    """The key of a number by the present name of its array."""
    kind, mark, name = key.partition(".field.")
    return f"{kind}.{present_name(f'field.{name}')}" if mark else key


def compare(name: str, found: dict[str, np.ndarray], tolerance: float = TOLERANCE) -> None:
    with np.load(FOLDER / f"{name}.npz") as file:
        expected = {present(key) if name in REGRESSION else key: file[key] for key in file.files}
    for key, value in found.items():
        if (name, key) in OTHER_DRAWS:
            assert value.shape == expected[key].shape and not np.allclose(value, expected[key])
            continue
        np.testing.assert_allclose(value, expected[key], rtol=tolerance, atol=tolerance, err_msg=f"{name}: {key}")
