"""The registry of specs: what files may name, and what is refused."""

import dataclasses
import subprocess
import sys

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import wishflow as wf
from wishflow import specs
from wishflow.diffusions import NoiseValues
from wishflow.errors import OptionError
from wishflow.specs import registry
from wishflow.training import TrainingSpec


@pytest.fixture(autouse=True)
def _registry_as_it_was():
    assert wf.FlowRegressor and wf.WishartForecaster  # lazy imports that register specs
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


class NoDataclass(wf.kernels.RBF):
    pass


@dataclasses.dataclass(frozen=True)
class NoPart(specs.Spec):
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


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("spec", [Mutable, Unknown(), "rbf", int, NoDataclass, NoPart])
def test_only_frozen_specs_are_registered(spec):
    with pytest.raises(OptionError, match="expected a frozen dataclass"):
        wf.register(spec, print)


@pytest.mark.usefixtures("types_unchecked")
def test_a_builder_is_a_function():
    with pytest.raises(OptionError, match="expected a function"):
        wf.register(Unknown, None)


def test_a_name_stands_for_one_class():
    other = dataclasses.make_dataclass("RBF", [], bases=(wf.kernels.KernelSpec,), frozen=True)
    with pytest.raises(OptionError, match="'RBF' is already registered"):
        wf.register(other, print)


def test_names_of_the_package_are_its_own_before_it_has_imported_them():
    """Parts are imported on first access, and a spec of that name would make that import fail."""
    code = """
import dataclasses
import wishflow as wf
@dataclasses.dataclass(frozen=True)
class Gaussian(wf.kernels.KernelSpec):
    pass
try:
    wf.register(Gaussian, print)
except Exception as error:
    print(type(error).__name__)
print(wf.SparseGPRegressor.__name__)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["OptionError", "SparseGPRegressor"]


def test_the_reserved_names_are_those_of_the_package():
    assert {
        name for name, kind in registry._KINDS.items() if kind.__module__.startswith("wishflow.")
    } == registry.RESERVED


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


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_iter", -1), ("learning_rate", 0.0), ("flow_dtype", "float8"), ("decay", 2.0), ("validation_fraction", 1.0)],
)
def test_values_that_a_training_spec_cannot_have_are_refused(field, value):
    with pytest.raises(OptionError, match=field):
        dataclasses.replace(TrainingSpec(1, 2, 0.1, 3, 4, 5, 6, 0.2, 7), **{field: value})


def test_the_training_spec_of_a_fit_repeats_it():
    X = np.linspace(-1.0, 1.0, 20)[:, None]
    first = wf.SparseGPRegressor(max_iter=2, n_inducing=5).fit(X, np.sin(3.0 * X[:, 0]))
    again = wf.SparseGPRegressor(preset=first.training_, n_inducing=5).fit(X, np.sin(3.0 * X[:, 0]))
    assert again.n_iter_ == first.n_iter_ and again.training_ == first.training_
    np.testing.assert_array_equal(again.predict(X), first.predict(X))


@dataclasses.dataclass(frozen=True)
class Strange(wf.diffusions.DiffusionSpec):
    pass


STRANGE_VALUES = {
    "nothing": lambda n: None,
    "a bare array": lambda n: jnp.ones((n, 2)),
    "a factor with its axes exchanged": lambda n: NoiseValues.of_factor(jnp.ones((n, 1, 2))),
    "a vector": lambda n: NoiseValues.of_diagonal(jnp.ones(2)),
}


class StrangePrepared(wf.diffusions.PreparedNoise):
    kind: str = eqx.field(static=True)

    def at(self, inputs, a, unexplained):
        return STRANGE_VALUES[self.kind](len(inputs))


class StrangeNoise(wf.diffusions.AbstractNoise):
    kind: str = eqx.field(static=True)

    def kl(self):
        return {}

    def prepare(self, dtype, rotation):
        return StrangePrepared(self.kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing", "returned None; expected `NoiseValues`"),
        ("a bare array", "expected `NoiseValues`"),
        ("a factor with its axes exchanged", r"of shapes .*; expected \(N, ρ, ν or 1\)"),
        ("a vector", r"shape \(2,\) given to NoiseValues.of_diagonal; expected \(N, D\)"),
    ],
)
@pytest.mark.parametrize("is_series", [False, True])
def test_values_of_a_noise_are_checked(kind, message, is_series, types_unchecked):
    wf.register(Strange, lambda *arguments: StrangeNoise(kind))
    rows = np.random.default_rng(0).normal(size=(30, 2))
    options = {"diffusion": Strange(), "max_iter": 1, "n_inducing": 5}
    with pytest.raises(OptionError, match=message):
        if is_series:
            wf.WishartForecaster(**options).fit(rows)
        else:
            wf.FlowRegressor(**options, validation_fraction=0).fit(rows, rows[:, 0])


@pytest.mark.parametrize(("found", "message"), [(None, "returned None; expected an instance"), ("pair", "of shape")])
def test_what_the_builder_of_a_diffusion_returns_is_checked(found, message):
    wf.register(Strange, lambda *arguments: (StrangeNoise("nothing"), np.eye(3)) if found == "pair" else found)
    with pytest.raises(OptionError, match=message):
        model = wf.FlowRegressor(diffusion=Strange(), n_inducing=5, validation_fraction=0)
        model.fit([[0.0, 0.0], [1.0, 2.0], [2.0, 0.5]], [0.0, 1.0, 0.0])


def test_what_the_builder_of_a_kernel_returns_is_checked():
    wf.register(Unknown, lambda spec, n_inputs, **start: None)
    with pytest.raises(OptionError, match="builder of Unknown returned None; expected"):
        wf.SparseGPRegressor(kernel=Unknown()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])
