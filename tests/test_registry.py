"""The registry of specs: what files may name, and what is refused."""

import dataclasses

import pytest

import wishflow as wf
from wishflow import specs
from wishflow.errors import OptionError
from wishflow.specs import registry
from wishflow.training import TrainingSpec


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    before = [dict(table) for table in (registry._KINDS, registry._BUILDERS)]
    yield
    for table, entries in zip((registry._KINDS, registry._BUILDERS), before, strict=True):
        table.clear()
        table.update(entries)


@dataclasses.dataclass(frozen=True)
class Unknown(wf.kernels.KernelSpec):
    pass


@dataclasses.dataclass
class Mutable:
    pass


def test_files_make_registered_specs_alone():
    """A class that merely derives from a spec is not made."""
    with pytest.raises(OptionError, match=r"'Unknown' is not registered.*wishflow.register"):
        specs.from_json({"kind": "Unknown"})
    wf.register(Unknown, lambda spec, n_inputs, **start: None)
    assert specs.from_json({"kind": "Unknown"}) == Unknown()


def test_a_spec_that_is_not_registered_is_refused_where_it_is_used():
    with pytest.raises(OptionError, match=r"Unknown is not registered; call wishflow.register\(Unknown, builder\)"):
        wf.SparseGPRegressor(kernel=Unknown()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])


@pytest.mark.parametrize("spec", [Mutable, Unknown(), "rbf", int])
def test_only_frozen_specs_are_registered(spec):
    with pytest.raises(OptionError, match="expected a frozen dataclass"):
        wf.register(spec, print)


def test_a_builder_is_a_function():
    with pytest.raises(OptionError, match="expected a function"):
        wf.register(Unknown, None)


def test_a_name_stands_for_one_class():
    other = dataclasses.make_dataclass("RBF", [], bases=(wf.kernels.KernelSpec,), frozen=True)
    with pytest.raises(OptionError, match="'RBF' is registered already"):
        wf.register(other, print)


def test_training_specs_of_version_0_1_are_read():
    """A field that was renamed, and two that are gone."""
    now = TrainingSpec(1, 2, 0.1, 3, 4, 5, 6, 0.2, 7, batch_counts_paths=True)
    data = now.to_json()
    data["counts_paths"] = data.pop("batch_counts_paths")
    data |= {"falls_back": True, "flow_noise_share": 0.1}
    assert specs.from_json(data) == now


@pytest.mark.parametrize("preset", [None, 3, {"max_iter": 5}])
def test_a_preset_is_a_name_or_a_training_spec(preset):
    with pytest.raises(OptionError, match=r"expected one of .* or a TrainingSpec"):
        wf.SparseGPRegressor(preset=preset).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
