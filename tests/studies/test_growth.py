"""The instrument that measures growth: exponents, sizes, turns, tables, figure; the measurement itself is no test."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from studies import paths
from studies.benchmarks import growth, growth_figure
from studies.benchmarks.speed.arithmetic import operations
from studies.benchmarks.tables import performance
from studies.benchmarks.tables.text import NOT_MEASURED


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
def test_exponents_of_exact_power_laws(power):
    x = np.array([2, 4, 8, 16, 32])
    assert growth.exponents(x, 7.0 * x**power) == pytest.approx({"whole": power, "upper": power}, abs=1e-12)


def test_the_upper_half_sees_the_larger_term():
    """y = 1000 + x²: nearly flat where x is small, nearly a square where it is large."""
    x = np.array([2.0, 8.0, 32.0, 128.0, 512.0])
    found = growth.exponents(x, 1000.0 + x**2)
    assert found["whole"] < found["upper"] < 2.0
    assert found["upper"] == pytest.approx(growth.exponent(x[2:], 1000.0 + x[2:] ** 2))


@pytest.mark.parametrize("n, expected", [(2, [0, 1]), (3, [1, 2]), (4, [1, 2, 3]), (5, [2, 3, 4])])
def test_the_upper_half_has_the_middle_and_two_values_at_least(n, expected):
    assert list(growth.upper(range(n))) == expected


def test_sizes_rise_hold_the_base_and_are_models_that_can_be():
    for quantity in growth.QUANTITIES:
        assert list(quantity.values) == sorted(set(quantity.values)) and 3 <= len(quantity.values) <= 5
        assert quantity.base in quantity.values and len(quantity.chosen(is_quick=True)) == 2
    by_field = {q.field: q.values for q in growth.QUANTITIES}
    assert max(by_field["rank"]) <= growth.SIZES["dim"] and min(by_field["dim"]) >= growth.SIZES["rank"]
    assert min(by_field["n_data"]) >= growth.SIZES["rows"]  # otherwise a batch is all rows, and none is picked


def test_the_base_is_a_work_of_the_speed_benchmark_with_other_sizes():
    independent, shared = (growth.CONFIGURATIONS[f"{name} columns"].work for name in ("independent", "shared"))
    assert (independent.n_posteriors, shared.n_posteriors) == (16, 4)
    assert operations(independent) > operations(shared)


def test_bytes_of_a_program_count_donated_arguments_once():
    sizes = {"argument": 100, "output": 40, "temp": 7, "alias": 30}
    memory = types.SimpleNamespace(**{f"{name}_size_in_bytes": size for name, size in sizes.items()})
    assert growth.peak_bytes(memory) == 117


def test_points_take_turns_and_a_turn_fills_its_time():
    calls = []

    def point(name, milliseconds):
        return growth.Point(lambda n: calls.append((name, n)) or milliseconds, 0)

    found = growth.in_turns([point("fast", 10.0), point("slow", 500.0)], rounds=2, turn_s=0.1)
    assert found == [[10.0, 500.0]] * 2
    assert calls == [("fast", 1), ("slow", 1), *[("fast", 10), ("slow", 1)] * 2]


@pytest.fixture
def result():
    """What a measurement writes, with times ∝ size and bytes ∝ √size."""
    found = {}
    for name, configuration in growth.CONFIGURATIONS.items():
        found[name] = {}
        for quantity in (q for q in growth.QUANTITIES if q.field in configuration.fields):
            values = quantity.values
            factor = 1.3 if configuration.is_rematerialised else 1.0
            points = [growth.Point(lambda n: 1.0, int(2**30 * value**0.5)) for value in values]
            rounds = [[factor * value for value in values]] * 3
            found[name][quantity.field] = growth.described(configuration, quantity, values, rounds, points)
    source = {"command": "c", "commit": "0" * 40, "device": "cpu", "versions": {"jax": "1"}, "cpu_count": 2}
    labels = {q.field: q.label for q in growth.QUANTITIES}
    return json.loads(json.dumps({"labels": labels, "configurations": found, "provenance": source}))


def test_tables_say_what_the_file_says_and_that_there_is_none(result, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert performance.growth_table() == performance.growth_memory_table() == NOT_MEASURED
    (tmp_path / "growth.json").write_text(json.dumps(result))
    assert "| solver steps | 2, 32 | 1.00, 1.00 (0.99) | 1.00, 1.00 (0.97) |" in performance.growth_table()
    assert "| rows of data, N | 8192, 524288 | 1.00, 1.00 (0.00) |" in performance.growth_table()
    memory = performance.growth_memory_table()
    assert "| solver steps, 2 to 32 | 1448 to 5793 (0.50) | 1448 to 5793 (0.50) | × 1.30 |" in memory


def test_the_figure_has_a_panel_for_each_size(result):
    figure = growth_figure.draw(result)
    shown = [ax for ax in figure.axes if ax.lines]
    assert len(shown) == len(growth.QUANTITIES) + len(growth.STORED_BY)
    assert all(ax.get_xscale() == ax.get_yscale() == "log" for ax in shown)


def test_the_figure_is_the_same_file_each_time(result, tmp_path):
    found = {name: {"n_steps": parts["n_steps"]} for name, parts in result["configurations"].items()}
    for name in ("a.svg", "b.svg"):
        growth_figure.save({**result, "configurations": found}, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
