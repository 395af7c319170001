"""The race to a score: what is scored, and which attempt counts."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from studies.benchmarks.race.data import Split, score
from studies.benchmarks.tables.performance import race_row


def test_the_score_is_the_mixture_in_the_units_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    means, variances, y = rng.normal(size=(4, 6)), rng.uniform(0.5, 2.0, (4, 6)), rng.normal(size=6)
    split = Split(np.zeros((1, 1)), np.zeros(1), np.zeros((6, 1)), y, 3.0)
    split.save(tmp_path / "split.npz")
    # y = 3 z has the density p(z) / 3
    scaled = norm.logpdf(3.0 * y, 3.0 * means, 3.0 * np.sqrt(variances))
    expected = np.mean(logsumexp(scaled, axis=0) - np.log(4))
    assert score(Split.load(tmp_path / "split.npz"), means, variances) == pytest.approx(expected, rel=1e-12)


def test_the_first_attempt_that_reaches_the_target_counts():
    attempts = [
        {"label": "short", "seconds": 3.2, "score": 1.0, "n_iter": 10},
        {"label": "long", "seconds": 5.6, "score": 1.3, "n_iter": 20},
        {"label": "longer", "seconds": 9.0, "score": 1.4, "n_iter": 30},
    ]
    assert race_row(attempts, 1.25) == ("6", "1.300", "long (20)")
    assert race_row(attempts, 2.0) == ("not in 9", "1.400", "longer (30)")
