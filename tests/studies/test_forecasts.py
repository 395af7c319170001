"""Paired errors of the benchmark of forecasts, and what its table says of them."""

import numpy as np
import pytest

from studies.benchmarks.forecasts import OURS, paired_block_error, summed
from studies.benchmarks.tables.forecasting import _leads

RNG = np.random.default_rng(0)


def test_blocks_of_one_origin_give_the_usual_standard_error():
    first, second = RNG.normal(size=(2, 50))
    difference = first - second
    expected = difference.std(ddof=1) / np.sqrt(50)
    assert paired_block_error(first, second, 1) == pytest.approx(expected)
    assert paired_block_error(first + 3.0, second, 1) == pytest.approx(expected)
    with_hole = np.insert(first, 7, np.nan)
    assert paired_block_error(with_hole, np.insert(second, 7, 0.0), 1) == pytest.approx(expected)


def test_blocks_know_that_windows_overlap():
    """Means of ten neighbours: the variance of their mean is about ten times that of independent ones."""
    noise = RNG.normal(size=20_009)
    overlapping = np.convolve(noise, np.ones(10) / 10.0, mode="valid")
    zero = np.zeros_like(overlapping)
    truth = 1.0 / np.sqrt(len(overlapping))
    assert paired_block_error(overlapping, zero, 100) == pytest.approx(truth, rel=0.2)
    assert paired_block_error(overlapping, zero, 1) < 0.5 * truth


def test_few_origins_have_five_blocks_and_one_has_no_error():
    values = np.arange(10.0)
    expected = np.std(values.reshape(5, 2).mean(1), ddof=1) / np.sqrt(5)
    assert paired_block_error(values, np.zeros(10), 8) == pytest.approx(expected)
    assert np.isnan(paired_block_error(values[:1], np.zeros(1), 1))


def test_scores_of_single_origins_are_kept():
    crps = RNG.uniform(size=(6, 2, 3))
    found = summed(crps, np.ones_like(crps), np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(np.mean(found["origins"], axis=0), found["crps"])
    crps[2, 1] = np.nan
    assert summed(crps, np.ones_like(crps), np.ones(3))["origins"][2][1] is None


def cell(values, has_origins=True):
    found = {"crps": [float(np.mean(values))], "horizons": [4], "origin_step": 2}
    return {**found, "origins": [[v] for v in values]} if has_origins else found


def test_the_table_has_errors_where_single_origins_are_kept():
    ours, other = 0.9 + 0.01 * RNG.normal(size=20), np.ones(20)
    high = cell(np.full(20, 5.0), has_origins=False)
    share = paired_block_error(ours, other, 2)
    expected = f"{100.0 * (ours.mean() - 1.0):+.1f}±{100.0 * share:.1f} %"
    assert _leads({"a": cell(other), "b": high, OURS: cell(ours)}) == expected
    without = _leads({"a": cell(other, has_origins=False), OURS: cell(ours)})
    assert without == f"{100.0 * (ours.mean() - 1.0):+.1f} %"
