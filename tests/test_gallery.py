"""The examples of docs/ run, show what their pages show, and come to conclusions that are known from theory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import threadpoolctl
from examples import gallery

import wishflow as wf
import wishflow.regression  # both before `registry_put_back`: kinds are registered where they are imported
import wishflow.series
from wishflow.errors import DatasetError
from wishflow.specs import registry

LARGEST_FIGURE = 150_000

by_script = pytest.mark.parametrize("script", gallery.SCRIPTS, ids=lambda script: script.stem)


def check_first_fit(names: dict[str, Any]) -> None:
    """About 90 rows with a probability of 0.9 each: 0.82 to 0.98 in 99 % of cases."""
    assert 0.8 <= names["inside"] <= 0.99
    assert (names["high"] > names["low"]).all()


def check_heteroskedastic(names: dict[str, Any]) -> None:
    """The flow is nearer to the truth than one noise for all inputs; nothing is better than the truth on average."""
    log_density, gap = names["log_density"], names["gap"]
    assert log_density["sparse GP"] + 0.2 < log_density["flow"] < log_density["truth"] + 0.02
    assert gap["flow"] < 0.5 * gap["sparse GP"]


def check_weather(names: dict[str, Any]) -> None:
    """Values of a day are one draw rather than 72: the share inside may be far from 0.9, but not from most."""
    assert names["train"].isna().mean().min() > 0.05 and names["train"]["LGA temp"].iloc[600:624].isna().all()
    assert names["inside"] > 0.6 and (names["low"] < names["high"]).all().all()
    assert (names["low"]["JFK wind_speed"] > -1.0).all()


def check_joint_exceedance(names: dict[str, Any]) -> None:
    """Positive correlation makes the joint probability larger than the product; the draws know it."""
    joint, product, truth = names["joint"], names["product"], names["truth"]
    assert (joint > product).all()
    assert np.abs(joint - truth).mean() < 0.3 * np.abs(product - truth).mean()


def check_anomalies(names: dict[str, Any]) -> None:
    assert names["found"].tolist() == [420, 460]
    fault = names["y"].iloc[460]
    assert (names["y"].min() < fault).all() and (fault < names["y"].max()).all()


def check_latent(names: dict[str, Any]) -> None:
    """No forecast of the signal makes errors smaller than the observation noise, up to the luck of 240 values."""
    error = names["error"]
    assert 0.9 * names["noise"] < error["latent state"] < error["one lag"]


def check_own_diffusion(names: dict[str, Any]) -> None:
    """The law of the model is that of the data, so its noise is found, within the error of 800 rows."""
    ratio = names["sd"] / names["truth"]
    assert ratio.min() > 0.6 and ratio.max() < 1.6
    assert names["sd"][-1] > 2.0 * names["sd"][0]


def check_many_fits(names: dict[str, Any]) -> None:
    assert len(names["fitted"]) == names["N_FITS"]
    assert names["spread"][names["hole"]].mean() > 1.5 * names["spread"][~names["hole"]].mean()


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "01_first_fit": check_first_fit,
    "02_heteroskedastic": check_heteroskedastic,
    "03_weather": check_weather,
    "04_joint_exceedance": check_joint_exceedance,
    "05_anomalies": check_anomalies,
    "06_latent": check_latent,
    "07_own_diffusion": check_own_diffusion,
    "08_many_fits": check_many_fits,
}
NEEDS_WEATHER = ("03_weather",)


@pytest.fixture
def registry_put_back():
    """Parts that an example registers are forgotten afterwards."""
    tables = (registry._KINDS, registry._BUILDERS)
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.slow
@pytest.mark.usefixtures("registry_put_back")
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(one, id=one.stem, marks=pytest.mark.long if one.stem == "06_latent" else [])
        for one in gallery.SCRIPTS
    ],
)
def test_an_example_runs(script, tmp_path, monkeypatch):
    """As a user runs it: in an empty folder, with JAX in 32 bits. It shows as many figures as its page."""
    if script.stem in NEEDS_WEATHER:
        try:
            wf.datasets.load_nyc_weather()
        except DatasetError as error:
            pytest.skip(f"needs the weather of New York: {error}")
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    shown = []
    with jax.enable_x64(False), threadpoolctl.threadpool_limits(None):
        names, printed = gallery.run(script, lambda: shown.append(plt.gcf().axes[-1].get_xlabel()))
    assert len(shown) == len(list(gallery.FIGURES.glob(f"{script.stem}-*.svg"))) >= 1
    assert all(shown) and any(printed)  # figures have labels, and something is said
    CHECKS[script.stem](names)


def test_every_example_has_a_check():
    assert sorted(CHECKS) == [script.stem for script in gallery.SCRIPTS]


@by_script
def test_figures_are_those_of_the_code(script):
    """After a change of the code its figures are made anew: `make gallery ARGS=<name>`."""
    record = json.loads(gallery.record_path(script).read_text(encoding="utf-8"))
    cells = gallery.cells(script)
    assert record["code"] == gallery.code_hash(script)
    assert len(record["printed"]) == sum(not cell.is_text for cell in cells)
    captions = [caption for cell in cells for caption in gallery.SHOW.findall(cell.source)]
    assert len(captions) == sum(cell.source.count("plt.show()") for cell in cells if not cell.is_text)
    figures = sorted(gallery.FIGURES.glob(f"{script.stem}-*"))
    assert [figure.name for figure in figures] == [
        gallery.figure_name(script, number + 1) for number in range(len(captions))
    ]
    assert max(figure.stat().st_size for figure in figures) < LARGEST_FIGURE


@by_script
def test_examples_are_short_and_pass_their_seeds(script):
    text = script.read_text(encoding="utf-8")
    assert 40 <= len(text.splitlines()) <= 90
    assert "random_state" in text


@by_script
def test_no_line_is_lost_between_a_script_and_its_notebook(script):
    """Cells of the notebook, written as a script again, are the script, up to empty lines between cells."""
    parts = []
    for cell in json.loads(gallery.notebook(script))["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown":
            lines = ["# %% [markdown]", *(f"# {line}".rstrip() for line in lines)]
        else:
            lines = ["# %%", *lines]
        parts.append("\n".join(lines))
    text = re.sub(r"\n+(?=# %%)", "\n\n", script.read_text(encoding="utf-8"))
    assert "\n\n".join(parts) + "\n" == text


@by_script
def test_a_page_has_the_code_the_text_and_the_figures(script):
    page = gallery.page(script)
    assert all(
        line in page for cell in gallery.cells(script) for line in cell.source.splitlines() if "show" not in line
    )
    assert all(page.count(caption) == 2 for caption in gallery.SHOW.findall(script.read_text(encoding="utf-8")))
    assert page.count("```python") == sum(not cell.is_text for cell in gallery.cells(script))
    assert f"{script.stem}-1.svg" in page and f"({script.stem}.ipynb)" in page
    assert f"({script.stem}.md)" in gallery.index()
