"""Which candidate is kept, by paired scores of held-back units."""

import numpy as np
import pytest

from wishflow.series.selection import MOST_BEHIND, is_behind, select

N = 200
RNG = np.random.default_rng(0)
REFERENCE = {"log density": RNG.normal(size=N), "CRPS": RNG.normal(size=60)}
NOISE = {name: RNG.normal(size=len(values)) for name, values in REFERENCE.items()}


def candidate(**errors):
    """Scores that differ from those of the reference by so many standard errors."""
    found = {}
    for name, values in REFERENCE.items():
        noise = NOISE[name] - NOISE[name].mean()
        error = noise.std(ddof=1) / np.sqrt(len(noise))
        found[name] = values + noise + errors.get(name.replace(" ", "_"), 0.0) * error
    return found


@pytest.mark.parametrize(
    ("errors", "lead", "kept"),
    [
        ({"CRPS": 2.0}, 1.0, 0),
        ({"log_density": 2.0}, 1.0, 0),
        ({"CRPS": 2.0, "log_density": -0.9}, 1.0, 0),
        ({"CRPS": 9.0, "log_density": -1.1}, 1.0, None),  # better forecasts, but a density that is worse
        ({"CRPS": -1.1, "log_density": 9.0}, 1.0, None),
        ({"CRPS": 0.9, "log_density": 0.9}, 1.0, None),
        ({"CRPS": 1.5}, 2.0, None),
        ({}, 1.0, None),
    ],
)
def test_a_candidate_leads_in_one_score_and_is_behind_in_none(errors, lead, kept):
    assert select([candidate(**errors)], REFERENCE, lead) == kept
    assert is_behind(candidate(**errors), REFERENCE) == (min(errors.values(), default=0.0) < -MOST_BEHIND)


def test_of_several_the_largest_gain_is_kept():
    found = [candidate(CRPS=2.0), candidate(CRPS=3.0, log_density=1.0), candidate(CRPS=9.0, log_density=-2.0)]
    assert select(found, REFERENCE) == 1
    assert select(found[:1] + found[2:], REFERENCE) == 0
    assert select([], REFERENCE) is None


def test_the_reference_itself_is_no_candidate():
    assert select([REFERENCE, dict(REFERENCE)], REFERENCE) is None


def test_the_order_of_units_and_their_offset_do_not_matter():
    order = RNG.permutation(N)
    for errors in ({"log_density": 1.05}, {"log_density": 0.95}):
        new, old = candidate(**errors)["log density"], REFERENCE["log density"]
        found = {
            select([{"a": x[at] + 1e3}], {"a": y[at] + 1e3})
            for x, y, at in ((new, old, slice(None)), (new, old, order))
        }
        assert found == {0 if errors["log_density"] > 1.0 else None}


def test_units_without_a_score_do_not_count_and_lost_ones_do():
    better = candidate(log_density=5.0)
    holes, lost, won = (dict(better) for _ in range(3))
    for found, value in ((holes, np.nan), (lost, -np.inf), (won, np.inf)):
        found["log density"] = np.where(np.arange(N) == 3, value, better["log density"])
    unseen = {**REFERENCE, "log density": np.where(np.arange(N) == 3, np.nan, REFERENCE["log density"])}
    assert select([holes], unseen) == 0
    assert select([holes], REFERENCE) is None
    assert select([lost], REFERENCE) is None
    assert select([won], REFERENCE) == 0
    both = {**REFERENCE, "log density": lost["log density"]}
    assert select([both], both) is None


def test_one_unit_says_nothing():
    assert select([{"a": np.array([5.0])}], {"a": np.array([0.0])}) is None


def test_scores_that_the_reference_does_not_have_do_not_count():
    assert select([{**candidate(CRPS=2.0), "other": np.zeros(3)}], REFERENCE) == 0
    assert select([{"CRPS": candidate(CRPS=2.0)["CRPS"]}], REFERENCE) == 0
