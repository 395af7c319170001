"""The instrument of the speed benchmark: protocol, turns, counts and table; the peers themselves are not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from studies import paths
from studies.benchmarks.speed import arithmetic, environments, problem, record, table
from studies.benchmarks.speed.__main__ import parse
from studies.benchmarks.speed.contenders import PEER_NAMES, Contender, contenders_of
from studies.benchmarks.speed.driver import Measurement, Worker, WorkerError, measure, steps_for
from studies.benchmarks.speed.loops import steps_in_a_loop
from studies.benchmarks.speed.works import WORKS, find_work
from studies.benchmarks.tables import performance
from wishflow.files.json import write_json_atomic

LIMITS = {"float32": 200.0, "float64": 100.0}

FAKE = """
import sys
from studies.benchmarks.speed.worker import Prepared, serve

def make(work, noise):
    print("a library that talks")  # must not reach the driver
    if {fails!r} == "prepare":
        raise MemoryError("too small a machine")
    done = []
    def run(n):
        done.append(n)
        if {fails!r} == "run" and len(done) > 3:
            sys.exit(3)
    return Prepared(run, lambda: {value})

serve(make, ("numpy", "no-such-package"))
"""


def fake_worker(value: float = 1.0, fails: str = "never") -> Worker:
    return Worker([sys.executable, "-c", FAKE.format(value=value, fails=fails)], environments.ROOT)


def test_a_worker_answers_line_by_line_whatever_its_library_prints():
    worker = fake_worker(value=2.5)
    try:
        assert worker.versions == {"numpy": np.__version__, "no-such-package": "not installed"}
        reply = worker.ask(do="prepare", work="svgp32", noise=None)
        assert reply["value"] == 2.5 and reply["compile_s"] >= 0.0 and reply["step_s"] >= 0.0
        assert worker.ask(do="run", n=3)["seconds_per_step"] >= 0.0
        assert worker.ask(do="memory")["peak_mb"] > 1.0
        with pytest.raises(WorkerError, match="unknown request"):
            worker.ask(do="dance")
    finally:
        worker.stop()


def test_contenders_take_turns_and_a_failure_costs_only_its_own_row():
    fails = {"good": "never", "early": "prepare", "late": "run"}
    contenders = [Contender(name, "none", ("svgp32",)) for name in (*fails, "absent")]

    def start(contender):
        if contender.name == "absent":
            raise environments.NotInstalled("could not be installed: no such version")
        return fake_worker(fails=fails[contender.name])

    good, early, late, absent = measure(find_work("svgp32"), contenders, start, rounds=2, steps=2, rest_s=0.0)
    assert (good.status, len(good.seconds), good.value) == ("ok", 2, 1.0) and good.peak_mb is not None
    assert early.status == "MemoryError: too small a machine" and early.seconds == []
    assert late.status.startswith("ended with status 3") and late.value == 1.0
    assert absent.status == "could not be installed: no such version"


def test_steps_of_a_turn_fill_a_second_within_bounds():
    assert [steps_for(s) for s in (0.1, 1e-5, 3.0, None)] == [10, 100, 4, 4]


# --- arithmetic ----------------------------------------------------------------------------------


def test_operations_of_svgp_by_hand():
    # 2000 rows; k(X, Z): 8·100, a: 100², quadratic form: 100², mean: 100; forward and two derivatives, 2 flops each.
    assert arithmetic.operations(find_work("svgp32")) == 6 * 2000 * (800 + 10_000 + 10_000 + 100)


def test_operations_of_flows_and_rollout_agree_with_the_design():
    """22, 15, 64 and 19 GFLOP."""
    gflop = {work.name: arithmetic.operations(work) / 1e9 for work in WORKS}
    assert gflop["diffgp"] == pytest.approx(22, abs=0.5)
    assert gflop["wishart_shared"] == pytest.approx(15, abs=0.5)
    assert gflop["wishart_independent"] == pytest.approx(63.5, abs=1.0)
    assert gflop["rollout"] == pytest.approx(19.5, abs=0.5)


def test_a_forecast_has_no_derivatives_and_cheaper_q_cost_less():
    forecast = find_work("forecast")
    by_state = 30 * 100 + 100**2 + 100 * 100**2 + (100 + 30) * 100
    assert arithmetic.operations(forecast) == 2 * 1000 * 48 * by_state
    costs = [arithmetic.operations(forecast, form) for form in ("full", "structured", "diagonal")]
    assert costs == sorted(costs, reverse=True)


# --- the table -----------------------------------------------------------------------------------


def measured(contender: str, ms: list[float], value: float = 10.0) -> Measurement:
    return Measurement("diffgp", contender, value=value, compile_s=1.5, peak_mb=300.0, seconds=[x / 1e3 for x in ms])


def test_rows_from_hand_made_timings():
    work = find_work("diffgp")
    measurements = [
        measured("ours", [100.0, 90.0, 110.0]),
        measured("ours, structured q", [50.0], value=99.0),
        measured("torch_loop", [300.0, 200.0, 400.0], value=10.00001),
        measured("torchsde", [400.0]),
        Measurement("diffgp", "diffrax", status="could not be installed: no wheel"),
    ]
    ours, structured, loop, _, diffrax = table.rows_of(work, measurements, LIMITS)
    assert (ours.median_ms, ours.quartiles_ms) == (pytest.approx(100.0), pytest.approx((95.0, 105.0)))
    assert ours.ratio == pytest.approx(3.0) and loop.ratio == pytest.approx(1.0)
    assert ours.limit_fraction == pytest.approx(arithmetic.operations(work) / 0.1 / 200e9)
    assert structured.ratio == pytest.approx(6.0) and structured.difference is None
    assert loop.difference == pytest.approx(1e-6) and diffrax.median_ms is None
    text = table.format_work(work, [ours, structured, loop, diffrax], LIMITS)
    assert "diffrax: could not be installed: no wheel" in text and "NOT THE SAME WORK" not in text


@pytest.mark.parametrize("value", [10.1, float("nan")])
def test_another_value_is_other_work(value):
    work = find_work("diffgp")
    rows = table.rows_of(work, [measured("ours", [1.0]), measured("torch_loop", [1.0], value=value)], LIMITS)
    assert [row.contender for row in table.unequal(work, rows)] == ["torch_loop"]
    assert "torch_loop: NOT THE SAME WORK" in table.format_work(work, rows, LIMITS)


# --- the result file -----------------------------------------------------------------------------


def made_record(commit: str, **times: float) -> dict:
    """What a run writes: ours and one peer on each work."""
    numbers = {"status": "ok", "ratio": 2.0, "limit_fraction": 0.5, "compile_s": 1.0, "peak_mb": 100.0}
    names = ("ours", "torch_loop")
    rows = [{"work": w, "contender": c, "median_ms": ms, **numbers} for w, ms in times.items() for c in names]
    made = {"command": "c", "commit": commit * 40, "device": "cpu", "versions": {"jax": "1"}, "cpu_count": 2}
    return record.one_run(rows, [{"work": row["work"]} for row in rows], {"before": {}, "after": {}}, made)


def test_a_run_replaces_all_rows_of_its_works_and_no_others():
    first = made_record("a", svgp32=1.0, diffgp=2.0, forecast=3.0)
    both = record.merged(first, made_record("b", diffgp=4.0, rollout=5.0))
    times = [(row["work"], row["median_ms"]) for row in both["rows"] if row["contender"] == "ours"]
    assert times == [("svgp32", 1.0), ("diffgp", 4.0), ("rollout", 5.0), ("forecast", 3.0)]
    assert [row["work"] for row in both["measurements"]] == [row["work"] for row in both["rows"]]
    works = {run["provenance"]["commit"][0]: run["works"] for run in both["runs"]}
    assert works == {"a": ["svgp32", "forecast"], "b": ["diffgp", "rollout"]}
    whole = made_record("c", svgp32=6.0, diffgp=6.0, rollout=6.0, forecast=6.0)
    assert record.merged(both, whole) == whole, "runs of which nothing is left are gone"
    assert record.merged(None, whole) == whole


def test_the_table_shows_the_file_that_a_run_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    assert performance.speed_table() == "Not measured yet."
    write_json_atomic(parse([]).output, record.merged(None, made_record("a", svgp32=1.25)))
    assert "| svgp32 | ours | 1.2 | 2.00 | 50% | 1.0 | 100 |" in performance.speed_table()
    write_json_atomic(parse([]).output, record.merged(None, made_record("b", svgp32=7.5)))
    assert "| svgp32 | ours | 7.5 |" in performance.speed_table()
    assert performance.source_list() == f"- `speed.json` (svgp32): `c`, commit {12 * 'b'}, cpu, jax 1, 2 cores"


# --- who, what, where ----------------------------------------------------------------------------


def test_every_peer_has_pinned_requirements_without_an_accelerator():
    for name in PEER_NAMES:
        pins = (environments.REQUIREMENTS / f"{name}.txt").read_text().split()
        assert pins and all("==" in pin and "://" not in pin for pin in pins)
        environments.refuse_unwanted([pin.split("==")[0] for pin in pins])


def test_torch_is_installed_before_what_depends_on_it():
    groups = environments.install_groups("# pins\ngpytorch==1.0\ntorch==2.13.0\ntorchsde==0.2\n", Path("pins.txt"))
    assert groups == [["torch==2.13.0", "--constraint", "pins.txt"], ["gpytorch==1.0", "torchsde==0.2"]]


def test_packages_of_an_accelerator_are_refused():
    with pytest.raises(environments.NotInstalled, match="nvidia_cublas"):
        environments.refuse_unwanted(["torch", "nvidia_cublas"])


def test_contenders_and_options():
    names = [c.name for c in contenders_of(find_work("svgp64"), ("gpflow", "torchsde"))]
    assert names == ["ours", "gpflow", "gpflow, XLA"]
    quick = parse(["--quick", "--works", "rollout", "--peers"])
    assert (quick.works, quick.peers, quick.rounds, quick.steps) == (["rollout"], [], 2, 2)


def test_noise_comes_back_in_the_order_of_its_use(tmp_path):
    arrays = [np.full((2,), float(i)) for i in range(12)]
    problem.write_noise(tmp_path / "noise.npz", arrays)
    np.testing.assert_array_equal(problem.read_noise(tmp_path / "noise.npz"), arrays)


# --- steps in one program -------------------------------------------------------------------------


def test_steps_in_a_loop_go_on_where_the_last_ended_and_take_the_batches_in_turn():
    """With carry ← 10 carry + batch the digits of the carry are the batches that were taken."""
    start = jnp.asarray(0.0)
    run = steps_in_a_loop(lambda carry, batch: (10 * carry + batch, -carry), start, [jnp.asarray(b) for b in (1, 2, 3)])
    assert [run(n) for n in (1, 2, 4)] == [0.0, -12.0, -123123.0]
    assert start == 0.0
