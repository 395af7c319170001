"""Figures as files."""

from __future__ import annotations

import re

import pytest

from studies import report


def test_an_svg_has_short_coordinates_and_whole_labels():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.subplots()
    axes.plot([0.0, 1 / 3, 2 / 3], [0.025, 0.05, 0.075])
    axes.set_yticks([0.025, 0.075], ["0.025", "0.075"])
    text = report.svg(figure).decode()
    assert ">0.025<" in text and ">0.075<" in text
    assert not any(re.search(r"\.\d{3}", tag) for tag in re.findall(r"<(?:path|use)[^>]+>", text))
