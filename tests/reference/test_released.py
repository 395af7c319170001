"""Model files of released versions load, and predict what they predicted then."""

from __future__ import annotations

import numpy as np
import pytest

import wishflow as wf
from wishflow.estimators.loading import REGISTRY

from .released import CASES, FOLDER, predicted

FILES = sorted(FOLDER.glob("v*/*.safetensors"))
MOST_BYTES = 60_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_loads_and_predicts_as_it_did(path):
    model = wf.load(path)
    found = predicted(model)
    with np.load(path.with_suffix(".npz")) as file:
        assert sorted(file.files) == sorted(found)
        for name in file.files:
            if file[name].dtype.kind == "U":
                np.testing.assert_array_equal(found[name], file[name])
            else:  # factorisations round differently on other processors
                np.testing.assert_allclose(found[name], file[name], rtol=1e-8, atol=1e-9, err_msg=name)


def test_this_version_has_a_small_file_of_every_kind():
    """`python -m tests.reference.released` writes what is missing."""
    there = {path.stem: path for path in FILES if path.parent.name == f"v{wf.__version__}"}
    assert set(there) == set(CASES)
    assert {type(wf.load(path)).__name__ for path in there.values()} == set(REGISTRY)
    assert all(path.stat().st_size < MOST_BYTES for path in there.values())
