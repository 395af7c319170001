"""Model files of version 0.1.0 load, and give the numbers that version gave: structure may change, numbers may not."""

from __future__ import annotations

import numpy as np
import pytest

import wishflow as wf
from wishflow.regression.storage import present_name

from .cases import FORECASTING, REGRESSION
from .make import FOLDER, predicted, trained

# Sums in another order differ by rounding.
RTOL = ATOL = 1e-10


@pytest.mark.parametrize("name", [*REGRESSION, *FORECASTING])
def test_a_file_loads_and_predicts_as_before(name):
    compare(name, predicted(name, wf.load(FOLDER / f"{name}.safetensors")))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*REGRESSION, *FORECASTING])
def test_objectives_gradients_and_steps_are_as_before(name):
    compare(name, trained(name, wf.load(FOLDER / f"{name}.safetensors")))


def present(key: str) -> str:
    """The key of a number by the present name of its array."""
    kind, mark, name = key.partition(".field.")
    return f"{kind}.{present_name(f'field.{name}')}" if mark else key


def compare(name: str, found: dict[str, np.ndarray]) -> None:
    with np.load(FOLDER / f"{name}.npz") as file:
        expected = {present(key) if name in REGRESSION else key: file[key] for key in file.files}
    for key, value in found.items():
        np.testing.assert_allclose(value, expected[key], rtol=RTOL, atol=ATOL, err_msg=f"{name}: {key}")
