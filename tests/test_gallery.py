"""The examples of docs/ run, show what their pages show, and come to conclusions that are known from theory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jax
import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from examples import gallery

from wishflow.numerics import devices as runtime

LARGEST_FIGURE = 150_000

by_script = pytest.mark.parametrize("script", gallery.SCRIPTS, ids=lambda script: script.stem)


def check_first_fit(names: dict[str, Any]) -> None:
    """115 rows with a probability of 0.9 each: 0.81 to 0.97 in 99 % of cases."""
    assert 0.8 <= names["inside"] <= 0.98


CHECKS: dict[str, Callable[[dict[str, Any]], None]] = {
    "01_first_fit": check_first_fit,
}


@pytest.mark.slow
@by_script
def test_an_example_runs(script, tmp_path, monkeypatch):
    """As a user runs it: in an empty folder, with JAX in 32 bits. It shows as many figures as its page."""
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    shown = []
    with jax.enable_x64(False), runtime.threadpoolctl.threadpool_limits(None):
        names, printed = gallery.run(script, lambda: shown.append([ax.get_xlabel() for ax in plt.gcf().axes]))
    assert len(shown) == len(list(gallery.FIGURES.glob(f"{script.stem}-*.svg"))) >= 1
    assert any(printed)
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
    assert "random_state=" in text


@by_script
def test_no_line_is_lost_between_a_script_and_its_notebook(script):
    """Cells of the notebook, written as a script again, are the script."""
    parts = []
    for cell in json.loads(gallery.notebook(script))["cells"]:
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown":
            lines = ["# %% [markdown]", *(f"# {line}".rstrip() for line in lines)]
        else:
            lines = ["# %%", *lines]
        parts.append("\n".join(lines))
    assert "\n\n".join(parts) + "\n" == script.read_text(encoding="utf-8")


@by_script
def test_a_page_has_the_code_the_text_and_the_figures(script):
    page = gallery.page(script)
    assert all(cell.source in page for cell in gallery.cells(script))
    assert page.count("```python") == sum(not cell.is_text for cell in gallery.cells(script))
    assert f"{script.stem}-1.svg" in page and f"({script.stem}.ipynb)" in page
    assert f"({script.stem}.md)" in gallery.index()
