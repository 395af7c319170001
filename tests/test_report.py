"""Reports are one file without network; in a browser they load without errors, and their controls work by keyboard."""

from __future__ import annotations

import json
import re

import browser
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import wishflow as wf
from wishflow.errors import OptionError
from wishflow.report import write_report
from wishflow.report.numbers import few_digits, span_in_words, thinned, time_of
from wishflow.series.forecast import Forecast

RIGHT = ("ArrowRight", 39)
DOWN = ("ArrowDown", 40)


def correlated(n_draws, n_times, names, seed=0):
    """Draws whose first two columns have the correlation 0.8."""
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(n_draws, n_times, len(names)))
    draws[..., 1] = 0.8 * draws[..., 0] + 0.6 * draws[..., 1]
    return draws


def forecast_of(names, n_times=48, n_draws=400):
    index = pd.date_range("2025-01-01", periods=n_times, freq="h", name="date")
    return Forecast(correlated(n_draws, n_times, names), index, pd.Index(names))


def history_of(names, n_rows):
    """Rows that end at the sixth time of `forecast_of`."""
    index = pd.date_range(end="2025-01-01 05:00", periods=n_rows, freq="h", name="date")
    values = np.random.default_rng(1).normal(size=(n_rows, len(names))).cumsum(axis=0) / 10.0
    return pd.DataFrame(values, index, names)


def scores_of(names, shift=0.0):
    rng = np.random.default_rng(2)
    shape = (9, 12, len(names))
    parts = {
        "crps": (("origin", "horizon", "variable"), 1.0 + shift + rng.random(shape)),
        "covered": (("origin", "horizon", "variable"), (rng.random(shape) < 0.8).astype(float)),
        "energy": (("origin", "horizon"), 2.0 + shift + rng.random(shape[:2])),
    }
    coordinates = {"origin": np.arange(9), "horizon": np.arange(1, 13), "variable": names}
    return xr.Dataset(parts, coordinates, attrs={"coverage": 0.8})


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def part_of(path, kind):
    return next(part for part in data_of(path)["parts"] if part["part"] == kind)


# --- what is in the file ---


def test_the_fan_holds_the_quantiles_and_the_observed_values(tmp_path):
    names = ["a", "b"]
    forecast, history = forecast_of(names), history_of(names, 100)
    path = forecast.report(tmp_path / "r.html", history=history)
    fan = part_of(path, "fan")
    np.testing.assert_allclose(fan["quantiles"][1][4], forecast.quantile(0.95)["b"], rtol=1e-3)
    assert len(fan["history"]["values"][0]) == 94  # the others are at times of the forecast
    np.testing.assert_allclose(fan["observed"][0][:6], history["a"].iloc[-6:], rtol=1e-3)
    assert fan["observed"][0][6:] == [None] * 42


def test_bands_of_correlations_contain_the_true_one(tmp_path):
    forecast = forecast_of(["a", "b"], n_times=200)
    low, high = (end.values[:, 0, 1] for end in forecast.correlation_interval(0.9))
    covered = np.mean((low <= 0.8) & (high >= 0.8))
    assert 0.9 - 4 * np.sqrt(0.09 / 200) < covered < 0.9 + 4 * np.sqrt(0.09 / 200)
    part = part_of(forecast.report(tmp_path / "r.html"), "correlations")
    np.testing.assert_allclose(part["low"][0], low, atol=1e-3)


def test_a_year_of_ten_series_by_the_hour_is_below_two_megabytes(tmp_path):
    names = [f"station {i}" for i in range(10)]
    forecast, history = forecast_of(names, 8760, 20), history_of(names, 8760)
    path = forecast.report(tmp_path / "r.html", history=history, scores={"a": scores_of(names), "b": scores_of(names)})
    assert path.stat().st_size < 2_000_000


def test_names_cannot_break_the_page(tmp_path):
    """Neither the script element nor the marks of the template."""
    names = ["</script><script>alert(1)</script>", "@DATA@"]
    path = forecast_of(names).report(tmp_path / "r.html")
    assert part_of(path, "fan")["variables"] == names
    assert path.read_text(encoding="utf-8").count("<script") == 2


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = forecast_of(["a", "b"]).report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!data:)', text) and "@import" not in text
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}  # the name of SVG's elements


def test_means_by_horizon_leave_out_what_was_not_observed(tmp_path):
    scores = scores_of(["a", "b"])
    scores["crps"][:, 3, 1] = np.nan
    charts = [part for part in data_of(write_report(tmp_path / "r.html", scores=scores))["parts"]][1]["charts"]
    np.testing.assert_allclose(charts[0]["lines"][0][3], scores["crps"][:, 3, 0].mean(), rtol=1e-3)


def test_a_report_of_nothing_is_refused(tmp_path):
    with pytest.raises(OptionError, match="nothing to report"):
        write_report(tmp_path / "r.html")


def test_days_are_named_without_hours():
    first, last = pd.Timestamp("2024-01-01"), pd.Timestamp("2024-01-07")
    assert span_in_words(first, last) == "2024-01-01 to 2024-01-07" and span_in_words(3, 5) == "3 to 5"
    assert span_in_words(first, last + pd.Timedelta("23h")) == "2024-01-01 00:00:00 to 2024-01-07 23:00:00"


def test_few_digits():
    assert few_digits([123456.0, 0.00123456, 0.0, np.nan, -2.0]) == [123500, 0.001235, 0, None, -2]
    assert few_digits([[np.inf, 1.5]]) == [[None, 1.5]]


def test_thinned_rows_keep_both_ends():
    assert thinned(10, 1, 100).tolist() == list(range(10))
    rows = thinned(1000, 3, 300)
    assert len(rows) <= 100 and rows[0] == 0 and rows[-1] == 999


def test_stamps_are_those_of_the_wall_clock():
    index = pd.date_range("2024-03-31", periods=4, freq="h", tz="Europe/Berlin")  # a clock that skips an hour
    found = time_of(index)
    expected = pd.DatetimeIndex(["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 03:00", "2024-03-31 04:00"])
    assert found["at"] == expected.as_unit("ms").asi8.tolist()
    assert time_of(pd.RangeIndex(3, 9, 2)) == {"kind": "number", "start": 3.0, "step": 2.0, "n": 3}


@pytest.fixture(scope="module")
def forecaster():
    y = history_of(["a", "b"], 90)
    return wf.WishartForecaster(max_iter=10, n_inducing=5, validation_fraction=0, random_state=0).fit(y), y


def test_the_bands_of_the_noise_hold_its_correlation(forecaster, tmp_path):
    """Of a Wishart noise with a posterior: ends in order, within [−1, 1], with width, the mean's correlation inside."""
    model, y = forecaster
    low, high = (end.values[10:, 0, 1] for end in model.correlation_interval(y))
    mean = model.correlation(y).values[10:, 0, 1]
    assert (low < high).all() and (np.abs([low, high]) <= 1.0 + 1e-12).all()
    assert ((low <= mean) & (mean <= high)).mean() > 0.9
    narrow = model.correlation_interval(y, coverage=0.2)
    assert (narrow[1] - narrow[0]).values[10:, 0, 1].mean() < 0.5 * (high - low).mean()
    model.report(tmp_path / "r.html", y=y, fh=5)
    kinds = [part["part"] for part in data_of(tmp_path / "r.html")["parts"]]
    assert kinds == ["fan", "correlations", "correlations", "plain"]


def test_constant_noise_has_bands_without_width():
    y = history_of(["a", "b"], 60)
    options = {"diffusion": "constant", "drift": "linear", "max_iter": 5, "validation_fraction": 0}
    model = wf.WishartForecaster(**options).fit(y)
    low, high = (end.values for end in model.correlation_interval(y))
    np.testing.assert_allclose(low, high, atol=1e-9)
    np.testing.assert_allclose(low, model.correlation(y).values, atol=1e-9)


def test_the_report_of_a_fit_says_what_was_trained(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(-2.0, 2.0, 60)})
    y = (np.sin(X["x"]) + 0.1 * rng.normal(size=60)).rename("height")
    model = wf.FlowRegressor(n_inducing=7, max_iter=20, n_steps=2, validation_fraction=0).fit(X, y)
    path = model.report(tmp_path / "r.html", X, y)
    text = path.read_text(encoding="utf-8")
    assert "n_inducing=7" in text and f"status: {model.status_}" in text
    assert "targets: height" in text and "inputs: x" in text
    charts = [chart for part in data_of(path)["parts"] for chart in part["charts"]]
    names = [chart["name"] for chart in charts]
    assert all(chart["caption"] for chart in charts)
    assert "height: observed against predicted" in names and any(name.startswith("objective") for name in names)


# --- in a browser ---


@pytest.fixture(scope="module")
def page():
    if browser.PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with browser.chromium() as page:
        yield page


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    names = ["pm25", "no2", "o3"]
    path = tmp_path_factory.mktemp("report") / "r.html"
    return forecast_of(names).report(
        path, history=history_of(names, 600), scores={"wishflow": scores_of(names), "VAR": scores_of(names, 0.2)}
    )


@pytest.mark.parametrize("width", [390, 1100])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_loads_without_errors_and_fits_its_width(page, written, width, dark):
    page.open(written, width, dark=dark)
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.querySelectorAll('main section').length") == 4
    assert not page.run("document.body.innerHTML.includes('NaN')")


def test_a_variable_is_chosen_by_keyboard(page, written):
    page.open(written)
    before = page.run("document.querySelector('main svg').getAttribute('aria-label')")
    page.run("document.querySelector('select').focus()")
    page.press(*DOWN)
    after = page.run("document.querySelector('main svg').getAttribute('aria-label')")
    assert before == "Fan chart of pm25" and after == "Fan chart of no2" and page.problems == []


def test_sliders_move_along_time_by_keyboard(page, written):
    page.open(written)
    for k in (0, 1):
        readout = f"document.querySelectorAll('.readout')[{k}].textContent"
        page.run(f"document.querySelectorAll('input[type=range]')[{k}].focus()")
        page.press("Home", 36)
        before = page.run(readout)
        page.press(*RIGHT)
        after = page.run(readout)
        assert "2025-01-01" in before and "2025-01-01 01:00" in after
    assert page.problems == []


def test_a_pair_of_the_matrix_is_chosen_by_keyboard(page, written):
    page.open(written)
    page.run("document.querySelectorAll('.matrix button')[1].focus()")
    page.press("Enter", 13)
    page.run("document.querySelectorAll('.matrix button')[1].click()")
    assert "pm25 and o3" in page.run("document.querySelectorAll('.readout')[1].textContent")
    pressed = "[...document.querySelectorAll('.matrix button')].map(b => b.getAttribute('aria-pressed'))"
    assert page.run(pressed).count("true") == 2  # above and below the diagonal


def test_every_control_has_a_name(page, written):
    page.open(written)
    unnamed = "[...document.querySelectorAll('select, input, button')].filter(e => !(e.labels && e.labels.length"
    unnamed += " && e.labels[0].textContent.trim()) && !e.getAttribute('aria-label')).length"
    assert page.run(unnamed) == 0


LUMINANCE = """
(() => { const seen = [];
  const lum = text => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => (v /= 255) <= .03928 ? v / 12.92
    : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ratio = (a, b) => (Math.max(lum(a), lum(b)) + .05) / (Math.min(lum(a), lum(b)) + .05);
  const card = getComputedStyle(document.querySelector('section')).backgroundColor;
  for (const e of document.querySelectorAll('.note, h2, td, th')) seen.push(ratio(getComputedStyle(e).color, card));
  for (const e of document.querySelectorAll('svg text')) seen.push(ratio(getComputedStyle(e).fill, card));
  for (const e of document.querySelectorAll('.matrix button')) seen.push(ratio(getComputedStyle(e).color,
    getComputedStyle(e).backgroundColor));
  return Math.min(...seen); })()
"""


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_the_contrast_that_wcag_asks_for(page, written, dark):
    page.open(written, dark=dark)
    assert page.run(LUMINANCE) >= 4.5
