"""The instrument of the accelerator's benchmark: counts of a program, times, traces and tables, from hand-made data."""

from __future__ import annotations

import types

import jax
import jax.numpy as jnp
import pytest

from studies.benchmarks.gpu import __main__ as command
from studies.benchmarks.gpu import ceilings, many, program, steps, table, timing, trace
from studies.benchmarks.speed import ours
from studies.benchmarks.speed.works import find_work
from wishflow.files.json import read_json

PROGRAM = """
HloModule jit_steps, is_scheduled=true

%sliced (param_0.1: s32[], param_1.1: f32[20,10,10]) -> f32[10,10] {
  %param_1.1 = f32[20,10,10]{2,1,0} parameter(1)
  %param_0.1 = s32[] parameter(0)
  %zero = s32[] constant(0)
  %cut = f32[1,10,10]{2,1,0} dynamic-slice(%param_1.1, %param_0.1, %zero, %zero), dynamic_slice_sizes={1,10,10}
  ROOT %bitcast.1 = f32[10,10]{1,0} bitcast(%cut)
}

%updated (param_0.2: f32[20,10,10], param_1.2: f32[10,10], param_2.2: s32[]) -> f32[20,10,10] {
  %param_0.2 = f32[20,10,10]{2,1,0} parameter(0)
  %param_1.2 = f32[10,10]{1,0} parameter(1)
  %param_2.2 = s32[] parameter(2)
  %new = f32[1,10,10]{2,1,0} bitcast(%param_1.2)
  ROOT %put = f32[20,10,10]{2,1,0} dynamic-update-slice(%param_0.2, %new, %param_2.2)
}

%euler (state: (s32[], f32[10,10], f32[20,10,10])) -> (s32[], f32[10,10], f32[20,10,10]) {
  %state = (s32[], f32[10,10]{1,0}, f32[20,10,10]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %path = f32[20,10,10]{2,1,0} get-tuple-element(%state), index=2
  %noise = f32[10,10]{1,0} fusion(%i, %path), kind=kLoop, calls=%sliced
  %product = (f32[10,10]{1,0}, s8[4194304]{0}) custom-call(%noise, %noise), custom_call_target="__cublas$gemm"
  %moved = f32[10,10]{1,0} get-tuple-element(%product), index=0
  %kept = f32[20,10,10]{2,1,0} fusion(%path, %moved, %i), kind=kLoop, calls=%updated
  ROOT %next = (s32[], f32[10,10]{1,0}, f32[20,10,10]{2,1,0}) tuple(%i, %moved, %kept)
}

%step (carry: (s32[], f64[5])) -> (s32[], f64[5]) {
  %carry = (s32[], f64[5]{0}) parameter(0)
  %loop = (s32[], f32[10,10]{1,0}, f32[20,10,10]{2,1,0}) while(%carry), condition=%c, body=%euler, \
backend_config={"known_trip_count":{"n":"20"}}
  %x = f64[5]{0} get-tuple-element(%carry), index=1
  ROOT %sine = f64[5]{0} sine(%x)
}

ENTRY %main (carry: (s32[], f64[5])) -> (s32[], f64[5]) {
  %start = (s32[], f64[5]{0}) parameter(0)
  ROOT %steps = (s32[], f64[5]{0}) while(%start), condition=%d, body=%step
}
"""


# --- what a program says of itself ----------------------------------------------------------------


def test_kernels_and_bytes_of_a_step_count_every_turn_of_its_loops():
    # Each turn: a slice of 400 bytes and its index (4), written (400); a product of two arrays, without its scratch
    # memory; an array and an index read, its place in the path written. After the loop: five float64, read and written.
    turn = (400 + 4 + 400) + 3 * 400 + (400 + 4 + 400)
    assert program.Program(PROGRAM).step() == program.Cost(kernels=20 * 3 + 1, bytes=20 * turn + 80, turns=20)


def test_a_text_without_a_program_has_no_cost():
    assert program.Program("HloModule nothing").step() is None


def test_bytes_of_shapes():
    shapes = ("f32[10,10]{1,0}", "(s32[], /*index=1*/f64[5]{0}, pred[3])", "bf16[0]{0}")
    assert [program.shape_bytes(shape) for shape in shapes] == [400, 47, 0]


def test_a_compiled_program_is_described():
    def loop(x, n):
        inner = lambda x: jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), None), x, None, length=7)[0]  # noqa: E731
        return jax.lax.fori_loop(0, n, lambda i, x: inner(x), x)

    compiled = jax.jit(loop).lower(jnp.ones((20, 20), jnp.float32), jnp.asarray(1)).compile()
    found = program.described(compiled)
    assert found["loop_turns"] == 7 and found["kernels"] >= 7
    assert found["bytes"] >= 7 * 2 * 1600 and found["program_mb"] > 0.0


# --- times ----------------------------------------------------------------------------------------


def test_rounds_are_as_long_as_asked_for_within_bounds():
    assert [timing.repeats(s, 0.1) for s in (0.01, 1e-9, 2.0)] == [10, timing.MOST, 1]


def test_median_of_rounds_is_by_piece(monkeypatch):
    done = []
    ticks = iter(range(1000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(ticks)))
    assert timing.median_seconds(done.append, round_s=2.0, rounds=3) == pytest.approx(1 / 6)
    assert done == [1, 3, 6, 6, 6]


def test_an_iteration_of_many_models_from_the_ends_of_their_chunks():
    ends = {0: [9.0, 11.0, 13.0, 15.0], 1: [9.0, 11.0, 13.0, 15.0]}
    assert many.seconds_by_iteration(ends, 100, is_together=True) == pytest.approx(0.02)
    assert many.seconds_by_iteration(ends, 100, is_together=False) == pytest.approx(0.04)


def test_problems_are_those_that_are_asked_for():
    first, second = (many.problem_of(many.shrunk(many.SHAPES[0]), seed) for seed in (0, 1))
    training, diffusion = first.training, first.spec.diffusion
    assert (training.n_steps, training.batch_size, training.n_train_samples, training.warm_iter) == (10, 2000, 1, 0)
    assert (diffusion.rank, diffusion.dof, diffusion.columns) == (5, 5, "shared")
    assert first.X.shape[1] == 8 and first.spec == second.spec and (first.X != second.X).any()


def test_operations_of_products():
    product = ceilings.Product("p", "", 2, 3, 5, batch=7, count=2)
    assert product.operations == 2 * 2 * 3 * 5 * 7 * 2 and product.shapes() == ((7, 2, 3), (7, 3, 5))


@pytest.mark.slow
def test_steps_in_a_loop_are_the_steps_one_by_one():
    """Two turns of the compiled loop give the vector of two plain steps on the first two batches."""
    work = steps.shrunk(find_work("svgp64"))
    start, batches = ours.adam_step(work, ours.build(work, "full")), ours.batches(work)
    vectors, state, key = start.vectors, start.state, jax.random.key(0)
    take = jax.jit(start.take)
    for batch in batches[:2]:
        vectors, state, key, value = take(vectors, state, batch, key)
    loop = steps.loop_of(work)
    loop.run(2)
    for found, expected in zip(
        jax.tree.leaves((loop.carry[0], loop.carry[3])), jax.tree.leaves((vectors, value)), strict=True
    ):
        assert jnp.allclose(found, expected, rtol=1e-10)


# --- traces ---------------------------------------------------------------------------------------


class Event:
    """An event that counts how often its stats are read."""

    reads = 0

    def __init__(self, name: str, start_ns: float, duration_ns: float, operation: str = "") -> None:
        self.name, self.start_ns, self.duration_ns, self.operation = name, start_ns, duration_ns, operation

    @property
    def stats(self):
        Event.reads += 1
        return [("correlation_id", 3), ("hlo_op", "dot.1"), *([("tf_op", self.operation)] if self.operation else [])]


def plane(name: str, **lines: list[Event]) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name=name, lines=[types.SimpleNamespace(name=key, events=events) for key, events in lines.items()]
    )


def test_kernels_are_summed_by_name_over_the_streams_of_the_accelerator_alone():
    events = [Event("gemm", 0, 1e6, "jit(f)/dot"), Event("gemm", 2e6, 3e6), Event("add", 6e6, 2e6)]
    planes = [plane("/host:CPU", python=[Event("host", 0, 9e9)]), plane("/device:GPU:0", Stream1=events, XLA=events)]
    Event.reads = 0
    summary = trace.summarise(planes, n_steps=2)
    assert [(k.name, k.ms, k.count, k.operation) for k in summary.kernels] == [
        ("gemm", 2.0, 1.0, "jit(f)/dot"),
        ("add", 1.0, 0.5, "dot.1"),
    ]
    assert (summary.busy_ms, summary.span_ms, Event.reads) == (3.0, 4.0, 2)
    assert "busy 3.000 ms of 4.000 ms" in trace.formatted(summary)
    assert trace.formatted(trace.summarise(planes[:1], 2)) == "no accelerator is in the profile."


# --- parts and tables -----------------------------------------------------------------------------


def test_parts_are_chosen_by_name_data_and_group():
    available = command.parts(is_quick=False)
    assert [p.name for p in command.chosen(available, ["kin8nm-20", "ceilings"])] == ["ceilings", "kin8nm-20"]
    assert [p.name for p in command.chosen(available, ["boston"])] == [f"boston-{n}" for n in (1, 5, 20, 100)]
    assert len(command.chosen(available, ["works"])) == 8 and len(command.chosen(available, [])) == len(available)
    with pytest.raises(ValueError, match="no part is called 'dance'"):
        command.chosen(available, ["dance"])


def test_a_part_that_fails_leaves_its_error_and_the_file_keeps_the_others(tmp_path):
    def fail():
        raise MemoryError("too small a machine\nin detail")

    product = {"name": "square", "n": 8, "k": 8, "m": 8, "batch": 0, "tflops": dict.fromkeys(ceilings.PRECISIONS, 50.0)}
    found = {"products": [product], "memory": {"copy": 4e12, "triad": 4e12}, "turn_us": dict.fromkeys(TURNS, 2.0)}
    some = [command.Part("ceilings", "ceilings", lambda: found), command.Part("works", "svgp32", fail)]
    assert not command.measure_all(some, tmp_path / "gpu.json")
    written = read_json(tmp_path / "gpu.json")
    assert written["works"]["svgp32"]["error"] == "MemoryError: too small a machine"
    assert written["ceilings"]["memory"] == found["memory"] and written["provenance"]["versions"]["jax"]
    assert "| svgp32 | MemoryError: too small a machine |" in table.tables(written)
    assert not command.measure_all([command.Part("ceilings", "ceilings", fail)], tmp_path / "gpu.json")
    again = read_json(tmp_path / "gpu.json")
    assert again["works"] == written["works"], "a part that is measured again leaves the others"
    assert again["earlier"] == [written["provenance"]], "and says where those come from"
    assert "not measured: MemoryError" in table.tables(again)


TURNS = ("known", "unknown", "call")


def test_shares_of_the_ceilings_by_hand():
    ceiling = {"products": [{"tflops": {"float32": 40.0}}, {"tflops": {"float32": 50.0}}], "memory": {"copy": 4e12}}
    work = {"step_ms": 2.0, "alone_ms": 3.0, "operations": 2e10, "dtype": "float32", "bytes": 4e9, "kernels": 100}
    line = table.works_table({"flow": {**work, "compile_s": 9.0, "program_mb": None}}, ceiling).splitlines()[-1]
    assert line == "| flow | 2.000 | 3.000 | 10.00 (20%) | 2.00 (50%) | 100 | 9.0 |  |"


def test_what_was_not_measured_says_so():
    assert table.tables(None) == table.tables({"provenance": {}}) == table.MISSING
