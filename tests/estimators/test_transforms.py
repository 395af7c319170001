"""Transforms of the forecaster: one law for draws and densities, tested by integration."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import cumulative_trapezoid, simpson
from scipy.stats import kstest, norm
from sklearn.preprocessing import FunctionTransformer, PowerTransformer

import wishflow as wf
from wishflow.errors import DataError, NumericalError
from wishflow.files.model_file import read_model, write_model
from wishflow.series.data.slopes import numeric_slope
from wishflow.series.data.transforms import (
    KNOT,
    NAMES,
    SCALED_LOG,
    TRANSFORMS,
    log_units,
    scaled_log1p,
    square_root,
)
from wishflow.series.running import autoregressive

SMALL = {"n_inducing": 8, "max_iter": 20, "rank": 1, "n_train_samples": 2, "random_state": 0, "validation_fraction": 0}
N = 120
HOURS = pd.date_range("2021-03-01", periods=N, freq="h")
# Smooth densities, for integrals over few points.
SMOOTH = {**SMALL, "diffusion": "diagonal"}
# How far laws reach, in units of the model.
REACH, POINTS = 7.0, 141


def walk(dim=1, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((N, dim))
    for t in range(1, N):
        x[t] = 0.8 * x[t - 1] + 0.6 * rng.normal(size=dim)
    return x


def rain(dim=1):
    """Half of the rows are zero, and the mean is less than a standard deviation above it."""
    y = pd.DataFrame(3.0 * np.maximum(walk(dim), 0.0), HOURS, list("ab")[:dim])
    assert ((y == 0.0).mean() > 0.3).all() and (y.mean() < y.std()).all()
    return y


def data_of(name):
    """Data with zeros near the edge; for the logarithm, which takes none, positive ones with a long tail."""
    if name != "log":
        return rain()
    y = np.exp(1.5 * pd.DataFrame(walk(), HOURS, ["a"]))
    assert (y.mean() < y.std()).all()
    return y


def grid(model):
    """Increasing values of y from one end of the law to the other."""
    return model.units_.inverse(np.linspace(-REACH, REACH, POINTS)[:, None])[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_density_of_the_forecast_which_integrates_to_one(name):
    model = wf.WishartForecaster(transform=name, **SMOOTH).fit(data_of(name))
    found = model.forecast([1, 4], n_draws=500)
    y = grid(model)
    density = np.exp([found.log_prob(np.full((2, 1), value)).to_numpy() for value in y])
    draws = found.samples.values[..., 0]
    assert np.isfinite(draws).all()
    for t in range(2):
        assert simpson(density[:, t], y) == pytest.approx(1.0, abs=1e-3)
        cdf = cumulative_trapezoid(density[:, t], y, initial=0.0)
        assert kstest(draws[:, t], lambda x, cdf=cdf: np.interp(x, y, cdf)).pvalue > 1e-3
    if name in ("log1p", "sqrt"):  # the law goes on below zero: nothing is cut
        assert (draws < 0.0).any() and (draws != 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log1p", "sqrt"])
def test_the_density_of_a_row_given_the_past_integrates_to_one(name, monkeypatch):
    monkeypatch.setattr(autoregressive, "N_SCORE_DRAWS", 2)
    model = wf.WishartForecaster(transform=name, **SMOOTH).fit(data_of(name))
    after = [model.end_ + pd.Timedelta("1h")]
    y = grid(model)[::2]
    density = np.exp([model.log_prob(pd.DataFrame({"a": [value]}, after)).iloc[0] for value in y])
    assert simpson(density, y) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_the_density_of_two_columns_integrates_to_one():
    """By importance sampling, in each of eight hours: points of a wide Gaussian of the model's units."""
    model = wf.WishartForecaster(transform={"a": "log1p", "b": "sqrt"}, **{**SMALL, "rank": 2}).fit(rain(2))
    found, rng = model.forecast(8, n_draws=300), np.random.default_rng(0)
    z = model.units_.forward(found.samples.values)
    centre, spread = z.mean(axis=0), 1.5 * z.std(axis=0)
    weights = []
    for _ in range(150):
        point = centre + spread * rng.normal(size=centre.shape)
        y = model.units_.inverse(point)
        proposal = norm.logpdf(point, centre, spread).sum(axis=1) + model.units_.log_jacobian(y)
        weights.append(np.exp(found.log_prob(y).to_numpy() - proposal))
    error = np.std(weights) / np.sqrt(np.size(weights))
    assert error < 0.05 and np.mean(weights) == pytest.approx(1.0, abs=4 * error)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log1p", "sqrt"])
def test_zeros_have_an_ordinary_density(name):
    y = rain()
    model = wf.WishartForecaster(transform=name, **SMALL).fit(y)
    scores = model.log_prob(y).iloc[1:]
    at_zero = scores[(y["a"] == 0.0).iloc[1:]]
    assert np.isfinite(scores).all() and at_zero.max() < 5.0
    assert model.forecast(1, n_draws=50).log_prob(np.zeros((1, 1))).iloc[0] < 5.0


def test_outside_of_the_support_there_is_no_density_and_no_past():
    model = wf.WishartForecaster(transform="log1p", **SMALL).fit(rain())
    found = model.forecast(2, n_draws=20)
    assert list(found.log_prob(np.array([[-1.5], [0.5]])) == -np.inf) == [True, False]
    assert np.isnan(found.log_prob(np.array([[np.nan], [0.5]])).iloc[0])
    after = [model.end_ + pd.Timedelta("1h")]
    with pytest.raises(DataError, match="takes values above -1"):
        model.log_prob(pd.DataFrame({"a": [-1.5]}, after))
    # A negative amount of rain is a mistake in data, but not in a question about the density.
    below = pd.DataFrame({"a": [-0.5]}, after)
    assert np.isfinite(model.log_prob(below)).all() and np.isfinite(model.covariance(below)).all()
    with pytest.raises(DataError, match="takes values of at least 0"):
        model.update(below)
    assert model.end_ == HOURS[-1]


@pytest.mark.parametrize(
    ("name", "value"), [("log1p", -0.1), (SCALED_LOG, -0.1), ("sqrt", -0.1), ("log", 0.0), ("log", -1.0)]
)
def test_data_that_a_transform_does_not_take_are_refused(name, value):
    y = rain() + 1.0
    y.iloc[3] = value
    with pytest.raises(DataError, match=rf"'a' holds {value:g}; its transform '{name}' takes values"):
        wf.WishartForecaster(transform=name, **SMALL).fit(y)


@pytest.mark.parametrize("name", NAMES)
def test_maps_are_one_to_one_with_the_slope_they_name(name):
    part = {**TRANSFORMS, "sqrt": square_root(0.01), SCALED_LOG: scaled_log1p(30.0)}[name]
    z = np.linspace(-3.0, 6.0, 200)
    y = part.inverse(z)
    assert (np.diff(y) > 0.0).all() and (y > part.bound).all()
    np.testing.assert_allclose(part.forward(y), z, atol=1e-10)
    step = 1e-6 * (y - max(part.bound, -10.0)) if "log" in name else 1e-7
    np.testing.assert_allclose((part.forward(y + step) - part.forward(y - step)) / (2 * step), part.slope(y), rtol=1e-4)
    far = np.array([-1e5, -800.0, 800.0, 1e5])
    assert np.isfinite(part.inverse(far)).all() and (part.inverse(far) > part.bound).all()


@pytest.mark.slow
def test_the_knot_of_the_root_follows_the_units(tmp_path):
    """It is a share of the median of positive values: other units change nothing but the Jacobian. It is stored."""
    y = rain()
    one, other = (wf.WishartForecaster(transform="sqrt", **SMALL).fit(factor * y) for factor in (1.0, 1e-6))
    (scale,) = one.units_.transforms.scales
    assert scale == np.median(y[y > 0.0].dropna())
    assert square_root(KNOT * scale).slope(np.zeros(1)) == one.units_.transforms.slope(np.zeros((1, 1)))[0, 0]
    np.testing.assert_allclose(one.log_prob(y), other.log_prob(1e-6 * y) + np.log(1e-6), atol=1e-4)
    one.save(tmp_path / "model")
    again = wf.load(tmp_path / "model")
    assert again.units_.transforms == one.units_.transforms
    np.testing.assert_array_equal(again.log_prob(y), one.log_prob(y))


@pytest.mark.slow
def test_the_unit_of_the_scaled_logarithm_follows_the_units(tmp_path):
    """Log densities of the same rows in another unit differ by its logarithm. The unit is stored."""
    y = rain()
    one, other = (wf.WishartForecaster(transform=SCALED_LOG, **SMALL).fit(factor * y) for factor in (1.0, 1e-6))
    np.testing.assert_allclose(one.log_prob(y), other.log_prob(1e-6 * y) + np.log(1e-6), atol=1e-4)
    one.save(tmp_path / "model")
    assert wf.load(tmp_path / "model").units_.transforms == one.units_.transforms


def test_the_unit_of_the_scaled_logarithm_is_one_for_counts_and_small_without_zeros():
    counts = np.random.default_rng(0).poisson(1.0, 300).astype(float)
    prices = np.linspace(90.0, 110.0, 300)
    units = log_units(np.column_stack([counts, prices, np.zeros(300)]))
    np.testing.assert_allclose(units, (1.0, KNOT * 100.0, 1.0))
    rainy = np.where(counts > 0.0, 0.2 * np.arange(300.0), 0.0)
    # Beside zeros: so small that few values are below it, and in the unit of the column.
    (unit,) = log_units(rainy[:, None])
    assert 0.01 < (rainy[rainy > 0.0] < unit).mean() < 0.2
    np.testing.assert_allclose(log_units(1e3 * rainy[:, None]), 1e3 * unit)


def test_old_files_have_a_knot_too(tmp_path):
    """They know no typical values; draws behind the root are zero but for rounding, as they were."""
    model = wf.WishartForecaster(transform="sqrt", **SMALL).fit(rain())
    model.save(tmp_path / "new")
    header, arrays = read_model(tmp_path / "new")
    del header["typical_values"]
    write_model(tmp_path / "old", header, arrays)
    again = wf.load(tmp_path / "old")
    draws = again.forecast(5, n_draws=100).samples.values
    assert (draws > -1e-3).all() and (draws < 0.0).any() and np.isfinite(again.log_prob(rain()).iloc[1:]).all()


def test_covariances_are_those_of_the_increments_of_y():
    """Σ̄ in the units of y: that of the model over the squared slope, at zeros too."""
    y = rain()
    model = wf.WishartForecaster(transform="sqrt", **SMALL).fit(y)
    units = model.units_
    plain = wf.WishartForecaster(**SMALL).fit(pd.DataFrame(units.transforms.forward(y.to_numpy()), HOURS, ["a"]))
    rate = plain.covariance(pd.DataFrame(units.transforms.forward(y.to_numpy()), HOURS, ["a"])).values[:, 0, 0]
    expected = rate / units.transforms.slope(y.to_numpy())[:, 0] ** 2
    np.testing.assert_allclose(model.covariance(y).values[:, 0, 0], expected, rtol=1e-6)


# --- transformers of scikit-learn's kind ------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "slope", "values"),
    [
        (np.log, lambda y: 1.0 / y, [1e-7, 1e-3, 1.0, 1e3]),
        (np.sqrt, lambda y: 0.5 / np.sqrt(y), [1e-7, 1e-3, 1.0, 1e3]),
        (np.arcsinh, lambda y: 1.0 / np.hypot(1.0, y), [-40.0, 0.0, 2.0]),
        (lambda y: np.where(y >= 0.0, y**2 + y, np.nan), lambda y: 2.0 * y + 1.0, [0.0, 1e-9, 3.0]),
    ],
    ids=["log", "sqrt", "asinh", "edge"],
)
@pytest.mark.parametrize("scale", [1e-10, 1e-3, 1.0, 50.0])
def test_slopes_by_differences_are_right_up_to_the_edge(function, slope, values, scale):
    y = np.array(values)
    np.testing.assert_allclose(numeric_slope(function, y, scale), slope(y), rtol=1e-5)


def test_a_function_without_a_slope_has_none():
    assert np.isnan(numeric_slope(np.sqrt, np.array([0.0, np.nan, -1.0]), 1.0)).all()


def test_differences_that_are_zero_by_rounding_are_no_slope():
    y = np.array([0.5, 1.0, 3.0, 10.0, 1e9])
    for scale in (1e-10, 1.0):
        np.testing.assert_allclose(numeric_slope(np.log, y, scale), 1.0 / y, rtol=1e-5)
    # At zero the step is a share of the scale. Where that is too short no slope is found, and none of zero is returned.
    assert np.isnan(numeric_slope(lambda y: np.log(y + 5.0), np.zeros(1), 1e-12)).all()
    # What is flat has a slope of zero, also next to where it is not.
    flat = numeric_slope(lambda y: np.clip(y, -1.0, 1.0), np.array([1.0 + 1e-5, 3.0, -3.0]), 1.0)
    np.testing.assert_array_equal(flat, 0.0)


def test_densities_behind_a_transformer_of_an_old_file_are_finite():
    y = np.exp(1.5 * pd.DataFrame(walk(), HOURS, ["a"])) + 3.0
    model = wf.WishartForecaster(transform=FunctionTransformer(np.log, np.exp), **SMALL).fit(y)
    expected = model.log_prob(y)
    old = dataclasses.replace(model.units_.transforms, scales=())
    model.units_ = dataclasses.replace(model.units_, transforms=old)
    np.testing.assert_allclose(model.log_prob(y), expected, rtol=1e-6)


@pytest.mark.slow
def test_densities_behind_a_transformer_are_those_of_the_named_transform():
    """Close to the edge too, where differences with a step of fixed length would leave the support."""
    y = 1e-4 * np.exp(1.5 * pd.DataFrame(walk(), HOURS, ["a"]))
    box_cox = PowerTransformer("box-cox", standardize=False).fit(y.to_numpy())
    box_cox.lambdas_ = np.zeros(1)  # the logarithm; it refuses values that are not positive
    named = wf.WishartForecaster(transform="log", **SMALL).fit(y)
    for transformer in (box_cox, FunctionTransformer(np.log, np.exp)):
        model = wf.WishartForecaster(transform=transformer, **SMALL).fit(y)
        np.testing.assert_allclose(model.log_prob(y).iloc[1:], named.log_prob(y).iloc[1:], rtol=1e-6)


def test_draws_without_a_value_are_an_error_that_names_the_transformer():
    """The inverse of Box-Cox with λ = 1/2 ends at z = −2, a standard deviation from the mean of these data."""
    y = pd.DataFrame(1e-3 + np.maximum(walk(), 0.0), HOURS, ["a"])
    box_cox = PowerTransformer("box-cox", standardize=False).fit(y.to_numpy())
    box_cox.lambdas_ = np.full(1, 0.5)
    with pytest.warns(UserWarning, match="does not recover the value"):
        model = wf.WishartForecaster(transform=box_cox, **SMALL).fit(y)
    with pytest.raises(DataError, match=r"draws of 'a' have no finite value.*PowerTransformer"):
        model.forecast(20, n_draws=300)


def test_paths_that_grow_beyond_all_numbers_are_an_error():
    y = pd.DataFrame({"a": walk()[:, 0]}, HOURS)
    units = wf.WishartForecaster(**SMALL).fit(y).units_
    assert np.isfinite(units.draws(np.full((2, 3, 1), 1e100))).all()
    with pytest.raises(NumericalError, match=r"3 of 6 drawn values are not finite: paths grow.*limits=0"):
        units.draws(np.stack([np.zeros((3, 1)), np.full((3, 1), np.nan)]))


def test_a_transformer_that_cuts_is_named_at_once():
    """What it maps to an end is a point mass there, which no density knows."""
    y = pd.DataFrame(walk(), HOURS, ["a"])
    cutting = FunctionTransformer(inverse_func=lambda z: np.clip(z, -1.5, 1.5))
    with pytest.warns(UserWarning, match="does not recover the value"):
        wf.WishartForecaster(transform=cutting, **SMALL).fit(y)


# --- limits -----------------------------------------------------------------------------------------

LIMITS = (None, 0, 0.1)
# How far laws with heavy tails reach, in units of the model.
FAR_REACH = 40.0


def ends_of(model):
    """The limits of a forecast in the units of the data; the whole line where there are none."""
    if model.limits_ is None:
        return -np.inf, np.inf
    return tuple(model.units_.inverse(model.limits_)[:, 0])


def densities(found, values):
    return np.exp([found.log_prob(np.full((2, 1), value)).to_numpy() for value in values])


@pytest.mark.slow
@pytest.mark.parametrize("innovations", ["gaussian", "student_t"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:innovations:UserWarning")
def test_draws_and_densities_are_of_one_law_whatever_the_limits(name, innovations):
    """Point masses at the limits and the integral between them are one, and draws have both."""
    y = data_of(name)
    for share in LIMITS:
        model = wf.WishartForecaster(transform=name, innovations=innovations, limits=share, **SMOOTH).fit(y)
        found = model.forecast([1, 4], n_draws=800)
        low, high = ends_of(model)
        units = np.sinh(np.linspace(-np.arcsinh(FAR_REACH), np.arcsinh(FAR_REACH), 401))
        if share is not None:
            between = np.linspace(*model.limits_[:, 0], 203)
            units = between[1:-1]
            units = np.sort(np.append(units, between[[0, -1]] + 1e-6 * np.array([1.0, -1.0]) * np.ptp(between)))
        inside = model.units_.inverse(units[:, None])[:, 0]
        density, draws = densities(found, inside), found.samples.values[..., 0]
        masses = np.zeros((2, 2)) if share is None else densities(found, [low, high])
        assert (share is None) == (masses.max() == 0.0)
        # Of Student-t steps masses are means over one draw of χ² for each path.
        error = 2e-3 if innovations == "gaussian" or share is None else 8e-3
        for t in range(2):
            assert masses[:, t].sum() + simpson(density[:, t], inside) == pytest.approx(1.0, abs=error)
            at_end = [np.isclose(draws[:, t], end, rtol=1e-9, atol=1e-9) for end in (low, high)]
            for flags, mass in zip(at_end, masses[:, t], strict=True):
                assert flags.mean() == pytest.approx(mass, abs=4.5 * np.sqrt(mass / 800) + 1e-3)
            free = draws[~(at_end[0] | at_end[1]), t]
            assert ((low < free) & (free < high)).all()
            cdf = cumulative_trapezoid(density[:, t], inside, initial=0.0)
            assert kstest(free, lambda x, cdf=cdf / cdf[-1], y=inside: np.interp(x, y, cdf)).pvalue > 1e-3
        if share is not None:
            beyond = densities(found, [low - 0.01 * (high - low), high + 0.01 * (high - low)])
            np.testing.assert_array_equal(beyond, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("innovations", ["gaussian", pytest.param("student_t", marks=pytest.mark.long)])
def test_probabilities_at_limits_of_several_columns_are_those_of_draws(innovations):
    """Both columns at a limit, or one of them and the other in between: nine parts, whose masses sum to one."""
    y = rain(2)
    options = {**SMALL, "rank": 2, "transform": "sqrt", "innovations": innovations, "limits": 0}
    model = wf.WishartForecaster(**options).fit(y)
    found = model.forecast([2], n_draws=3000)
    draws = found.samples.values[:, 0]
    ends = model.units_.inverse(model.limits_)
    between = np.linspace(*model.limits_, 41)[1:-1]
    inside = model.units_.inverse(between)
    side = np.isclose(draws, ends[1], atol=1e-9).astype(int) - np.isclose(draws, ends[0], atol=1e-9).astype(int)

    def density(a, b):
        return np.exp(found.log_prob(np.array([[a, b]])).iloc[0])

    masses = {}
    for i in (-1, 1):
        for j in (-1, 1):
            masses[i, j] = density(ends[(i + 1) // 2, 0], ends[(j + 1) // 2, 1])
        along = np.array([[density(ends[(i + 1) // 2, 0], b), density(a, ends[(i + 1) // 2, 1])] for a, b in inside])
        masses[i, 0], masses[0, i] = simpson(along[:, 0], inside[:, 1]), simpson(along[:, 1], inside[:, 0])
    for (i, j), mass in masses.items():
        share = (side == [i, j]).all(axis=1).mean()
        assert share == pytest.approx(mass, abs=4.5 * np.sqrt(max(mass, 1e-3) / len(draws)) + 0.05 * mass), (i, j)
    assert masses[-1, -1] > 0.02 and max(masses[-1, 0], masses[0, -1]) > 0.02
