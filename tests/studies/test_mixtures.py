"""The table of pairs from which mixtures of Beijing forecasters are scored."""

import numpy as np
import pytest

from studies.beijing.protocol import BANDS, HORIZON
from studies.benchmarks import mixtures
from wishflow import metrics

N_WINDOWS, N_DRAWS, DIM = 2, 6, 3


@pytest.fixture
def table(monkeypatch):
    """Three models whose draws differ in place and spread, and what came."""
    monkeypatch.setattr(mixtures, "N_DRAWS", N_DRAWS)
    rng = np.random.default_rng(0)
    shape = (N_WINDOWS, N_DRAWS, HORIZON, DIM)
    draws = {name: (i + (1 + i) * rng.normal(size=shape)).astype(np.float32) for i, name in enumerate("abc")}
    return draws, rng.normal(size=(N_WINDOWS, HORIZON, DIM)).astype(np.float32)


def by_band(values):
    return [values[:, hours].mean() for hours in BANDS.values()]


def test_one_model_has_its_fair_energy_score(table):
    draws, y = table
    pairs = mixtures.pair_table(draws, y)
    for i, name in enumerate(draws):
        expected = np.stack([metrics.energy_score(y[w], draws[name][w]) for w in range(N_WINDOWS)])
        np.testing.assert_allclose(mixtures.mixture_energy(*pairs, (i,)), by_band(expected), rtol=1e-5)


def test_a_mixture_has_the_energy_score_of_its_pooled_draws(table):
    """ES of the pooled draws with every pair of different draws counted by the weight of its models."""
    draws, y = table
    found = mixtures.mixture_energy(*mixtures.pair_table(draws, y), (0, 2))
    a, c = draws["a"].astype(float), draws["c"].astype(float)

    def spread(u, v, is_same):
        total = np.linalg.norm(u[:, :, None] - v[:, None], axis=-1).sum((1, 2))
        return total / (N_DRAWS * (N_DRAWS - is_same))

    error = np.mean([np.linalg.norm(x - y[:, None], axis=-1).mean(1) for x in (a, c)], axis=0)
    pairs = (spread(a, a, True) + spread(c, c, True) + 2 * spread(a, c, False)) / 4
    np.testing.assert_allclose(found, by_band(error - 0.5 * pairs), rtol=1e-5)


def test_mixtures_are_ranked_with_bands_counting_alike(table):
    draws, y = table
    pairs, kinds = mixtures.pair_table(draws, y), mixtures.kinds_of(draws)
    ranked = mixtures.best_mixtures(*pairs, kinds, 2)
    assert sorted(names for names, _ in ranked) == [("a", "b"), ("a", "c"), ("b", "c")]
    usual = np.mean([mixtures.mixture_energy(*pairs, (i,)) for i in range(3)], axis=0)
    worth = [(energy / usual).mean() for _, energy in ranked]
    assert worth == sorted(worth)


def test_fits_of_a_kind_are_mixed_together(table):
    draws, y = table
    pairs, kinds = mixtures.pair_table(draws, y), mixtures.kinds_of(["rbf.0", "other", "rbf.1"])
    assert kinds == {"rbf": (0, 2), "other": (1,)}
    found = dict(mixtures.best_mixtures(*pairs, kinds, 1))
    np.testing.assert_array_equal(found["rbf",], mixtures.mixture_energy(*pairs, (0, 2)))
    ((names, energy),) = mixtures.best_mixtures(*pairs, kinds, 2)
    assert sorted(names) == ["other", "rbf"]
    np.testing.assert_allclose(energy, mixtures.mixture_energy(*pairs, (0, 1, 2)), rtol=1e-12)
