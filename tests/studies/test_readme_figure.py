"""The picture of the README: its caption has the numbers of its result file, and its scores are right where known."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from studies import paths
from studies.benchmarks import readme_figure


def test_the_caption_has_the_numbers_of_the_result_file():
    text = " ".join((paths.ROOT / "README.md").read_text(encoding="utf-8").split())
    found = json.loads((paths.RESULTS / "readme_figure.json").read_text(encoding="utf-8"))
    said = re.search(
        r"forecast from step (\d+)\..*first (\d+) steps.*at (\d+) later .*a correlation of (0\.\d\d) ", text
    )
    start = found["n_train"] + readme_figure.N_PAST
    assert said.groups() == (f"{start}", f"{found['n_train']}", f"{found['n_rows']}", f"{found['agreement']:.2f}")


class Learnt:
    """A model whose correlations are those given, with bands of ± 0.1."""

    def __init__(self, values):
        self.values = values

    def _array(self, shift):
        matrices = np.tile(np.eye(2), (len(self.values), 1, 1))
        matrices[:, 0, 1] = self.values + shift
        return xr.DataArray(matrices)

    def correlation(self, rows):
        return self._array(0.0)

    def correlation_interval(self, rows, coverage):
        return self._array(-0.1), self._array(0.1)


def test_scores_of_correlations_that_are_too_high_by_a_constant():
    truth = np.linspace(-0.5, 0.5, 11)
    found = readme_figure.scores(Learnt(truth + 0.05), pd.DataFrame(), truth)
    assert found["agreement"] == pytest.approx(1.0) and found["rmse"] == pytest.approx(0.05)
    assert found["inside_band"] == 1.0
    assert readme_figure.scores(Learnt(truth + 0.2), pd.DataFrame(), truth)["inside_band"] == 0.0


def test_the_true_correlation_is_that_of_simulated_steps():
    """Over short steps, from one state: within four standard errors of the sample correlation."""
    law, y = readme_figure.simulated()
    start = y.iloc[:1]
    ends = law.simulate(20_000, 1, 1e-3, 0, x0=start.to_numpy()[0])[:, 1]
    sampled = np.corrcoef((ends - start.to_numpy()[0]).T)[0, 1]
    expected = readme_figure.true_correlation(law, start)[0]
    assert sampled == pytest.approx(expected, abs=4.0 * (1.0 - expected**2) / np.sqrt(20_000) + 1e-3)
