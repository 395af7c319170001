"""What a fit leaves behind, what options do, and what several targets or several estimators have in common."""

import numpy as np
import optax
import pytest
from small import SMALL, SMALL_GP

import wishflow as wf
from wishflow.callbacks import Callback
from wishflow.numerics.scaling import Scaler
from wishflow.regression import presets

pytestmark = pytest.mark.slow  # long where nothing is compiled yet: `make test-all` runs them

# --- history ---------------------------------------------------------------------------------


def test_history_has_one_row_for_each_iteration_and_names_the_parts(flow):
    history = flow.history_
    assert flow.n_iter_ == len(history)
    assert history["phase"].unique().tolist() == ["output", "flow"]
    steps = history[history["phase"] == "flow"]
    assert steps["step"].tolist() == list(range(flow.max_iter))
    parts = steps["fit"] - steps["kl_output"] - steps["kl_drift"] - steps["kl_diffusion"]
    np.testing.assert_allclose(steps["objective"], parts, rtol=1e-12)
    assert steps[["diffusion_norm", "drift_norm", "noise", "seconds"]].notna().all(axis=None)
    assert (steps["skipped"] == 0).all()


def test_history_of_the_sparse_gp_rises(gp):
    """L-BFGS on the collapsed bound takes no step back."""
    assert gp.history_["phase"].unique().tolist() == ["fit"]
    assert (np.diff(gp.history_["bound"]) >= 0).all()
    assert gp.history_["bound"].equals(gp.history_["objective"].rename("bound"))
    assert gp.n_iter_ == len(gp.history_) <= gp.max_iter
    assert gp.status_ in ("reached max_iter", "converged")


class Recorder(Callback):
    def __init__(self, stop_in=None):
        self.starts, self.events, self.n_ends, self.stop_in = [], [], 0, stop_in

    def on_start(self, phase, n_steps):
        self.starts.append((phase, n_steps))

    def on_chunk(self, event):
        self.events.append(event)
        return event.phase == self.stop_in

    def on_end(self):
        self.n_ends += 1


def test_callbacks_see_every_phase_and_the_end(X, y):
    recorder = Recorder()
    model = wf.FlowRegressor(callbacks=recorder, **SMALL).fit(X, y)
    assert [phase for phase, _ in recorder.starts] == ["output", "flow"]
    assert recorder.events[-1].step == recorder.events[-1].n_steps == SMALL["max_iter"]
    assert recorder.n_ends == 1
    np.testing.assert_array_equal(recorder.events[-1].records["objective"], model.history_["objective"].to_numpy()[-5:])


def test_callbacks_can_end_a_fit(X, y):
    settings = {**SMALL, "max_iter": 300}
    model = wf.FlowRegressor(callbacks=[Recorder(), Recorder(stop_in="flow")], **settings).fit(X, y)
    assert (model.history_["phase"] == "flow").sum() == 100  # the first chunk
    assert model.status_ == "stopped by a callback"


def test_a_fit_says_nothing_unless_asked(X, y, capfd, recwarn):
    wf.FlowRegressor(**SMALL).fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list
    wf.FlowRegressor(verbose=1, **SMALL).fit(X, y)
    shown = capfd.readouterr()
    assert "flow" in shown.err and "objective" in shown.err and shown.out == ""


# --- options ---------------------------------------------------------------------------------


def test_options_come_from_the_preset_unless_given():
    def training(**options):
        return wf.FlowRegressor(**options)._training(500, 4)

    fast, paper = presets.fast_preset(500, 4), presets.paper_preset(500, 4)
    assert training() == fast
    assert training(preset="paper") == paper
    given = {"n_steps": 7, "max_iter": 200, "batch_size": 64, "learning_rate": 0.5, "n_train_samples": 3}
    chosen = training(preset="paper", **given)
    assert {name: getattr(chosen, name) for name in given} == given
    # The warm-up keeps its share of the iterations: a tenth in the paper's settings.
    assert chosen.kl_warmup == 20
    assert chosen.warm_iter == paper.warm_iter


def test_iterations_and_rate_of_the_sparse_gp_are_those_of_its_one_phase():
    training = wf.SparseGPRegressor(max_iter=17, learning_rate=0.3)._training(500, 4)
    assert (training.warm_iter, training.warm_rate) == (17, 0.3)
    assert wf.SparseGPRegressor()._training(500, 4).warm_iter == presets.fast_preset(500, 4).sgp_iter


@pytest.mark.filterwarnings("ignore:training of model .* diverged:RuntimeWarning")
def test_a_schedule_is_a_learning_rate(X, y, flow):
    """A rate of zero leaves the flow where it starts; a constant one moves it, and not as the preset's does."""

    def moved(rate):
        history = wf.FlowRegressor(learning_rate=rate, **SMALL).fit(X, y).history_
        return history["drift_norm"].iloc[-1]

    assert moved(optax.constant_schedule(0.0)) == 0.0
    assert moved(optax.constant_schedule(0.05)) > moved(optax.constant_schedule(0.01)) > 0.0
    assert moved(optax.constant_schedule(0.05)) != flow.history_["drift_norm"].iloc[-1]


def test_rank_above_the_number_of_inputs_acts_as_it(X, y, flow):
    assert flow.rank == 5 > X.shape[1]
    same = wf.FlowRegressor(**{**SMALL, "rank": 2}).fit(X, y)
    assert np.array_equal(same.predict(X), flow.predict(X))


def test_a_spec_says_the_same_as_its_name(X, y, flow, gp):
    """ν is the preset's for the name, one for few inputs."""
    spec = wf.FlowRegressor(diffusion=wf.diffusions.Wishart(dof=1), kernel=wf.kernels.RBF(), **SMALL).fit(X, y)
    assert np.array_equal(spec.predict(X), flow.predict(X))


def test_random_state(X, y, gp):
    """None and 0 are one seed, generators give a seed of their own; the seed also serves predictions."""
    assert wf.SparseGPRegressor(random_state=0, **SMALL_GP).fit(X, y).seed_ == gp.seed_ == 0
    drawn = [wf.SparseGPRegressor(random_state=np.random.RandomState(s), **SMALL_GP).fit(X, y).seed_ for s in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]


# --- flows -----------------------------------------------------------------------------------


def test_no_flow_time_is_a_sparse_gp(X, y):
    """With T = 0 the inputs stay where they are, whatever the field."""
    still = wf.FlowRegressor(flow_time=0.0, **SMALL).fit(X, y)
    paths = still.flow_paths(X)
    assert np.array_equal(paths, np.broadcast_to(paths[0], paths.shape))
    np.testing.assert_allclose(paths[0], X, rtol=1e-12)


def test_paths_start_at_the_rows_in_their_units(flow, X):
    paths = flow.flow_paths(X, random_state=3)
    assert paths.shape == (SMALL["n_steps"] + 1, *X.shape)
    np.testing.assert_allclose(paths[0], X, rtol=1e-12)
    assert np.array_equal(paths, flow.flow_paths(X, random_state=3))
    assert not np.array_equal(paths, flow.flow_paths(X, random_state=4))


def test_spread_of_the_paths_is_that_of_the_mean_covariance(flow, X):
    """After one Euler step from the same row, the covariance of the state is Δ Σ̄: the drift is common."""
    row = np.repeat(X[:1], 4000, axis=0)
    first = flow.flow_paths(row)[1]
    dt = flow.flow_time / SMALL["n_steps"]
    expected = dt * flow.mean_covariance(X[:1])[0]
    # A Wishart draw has heavy tails; the standard error of these variances is about 6 %.
    np.testing.assert_allclose(np.cov(first.T)[np.diag_indices(2)], np.diag(expected), rtol=0.2)
    assert np.linalg.eigvalsh(expected).min() > 0


# --- several targets -------------------------------------------------------------------------


def test_each_target_has_its_own_units(flow_of_two, X, Y):
    """Another unit of the second target changes nothing but that unit."""
    units = np.array([1.0, 1e3])
    other = wf.FlowRegressor(**SMALL).fit(X, Y * units)
    mean, std = flow_of_two.predict(X, return_std=True)
    assert mean.shape == std.shape == Y.shape
    np.testing.assert_allclose(other.predict(X, return_std=True), (mean * units, std * units), rtol=1e-5)
    np.testing.assert_allclose(other.log_prob(X, Y * units), flow_of_two.log_prob(X, Y) - np.log(1e3), rtol=1e-4)


def test_a_column_of_targets_keeps_its_shape(X, y, gp):
    column = wf.SparseGPRegressor(**SMALL_GP).fit(X, y[:, None])
    assert np.array_equal(column.predict(X), gp.predict(X)[:, None])
    assert np.array_equal(column.log_prob(X, y), gp.log_prob(X, y))
    assert column.predict_interval(X).shape == (len(X), 1, 2)
    assert column.sample_y(X, 3).shape == (len(X), 1, 3)
    assert column.predict(X, return_cov=True)[1].shape == (len(X), len(X), 1)


def test_density_of_two_targets_integrates_to_one(flow_of_two, X):
    """The joint density, on a grid over both targets; the mixture makes them dependent."""
    mean, std = (part[0] for part in flow_of_two.predict(X[:1], return_std=True))
    axes = [np.linspace(m - 9 * s, m + 9 * s, 61) for m, s in zip(mean, std, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(flow_of_two.log_prob(np.repeat(X[:1], len(grid), axis=0), grid))
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert abs(density.sum() * cell - 1.0) < 1e-3


# --- draws -----------------------------------------------------------------------------------


def test_draws_can_be_repeated_and_extended(flow, X):
    draws = flow.sample_y(X, 4, random_state=7)
    assert draws.shape == (len(X), 4)
    assert np.array_equal(draws, flow.sample_y(X, 4, random_state=7))
    np.testing.assert_allclose(flow.sample_y(X, 3, random_state=7), draws[:, :3], rtol=1e-9)
    assert not np.array_equal(draws, flow.sample_y(X, 4, random_state=8))
    assert np.array_equal(draws, flow.sample_y(X, 4, random_state=np.int64(7)))


def test_covariance_between_rows_is_that_of_the_function(gp, X):
    """Rows that nearly coincide share g but not the noise; rows far apart share nothing."""
    rows = np.vstack([X[:1], X[:1] + 1e-9, X[:1] + 1e6])
    covariance = gp.predict(rows, return_cov=True)[1]
    std = gp.predict(rows, return_std=True)[1]
    np.testing.assert_allclose(np.diag(covariance), std**2, rtol=1e-9)
    np.testing.assert_allclose(covariance, covariance.T)
    noise = float(gp.model_.likelihood.noise_summary()) * gp.y_scaler_.scale[0] ** 2
    assert abs(covariance[0, 1] - (std[0] ** 2 - noise)) < 0.15 * std[0] ** 2
    assert abs(covariance[0, 2]) < 0.15 * std[0] * std[2]


# --- many at once, scaling -------------------------------------------------------------------


def test_fit_many_gives_what_single_fits_give(X, y, flow):
    first, second = wf.fit_many([wf.FlowRegressor(**SMALL) for _ in range(2)], [(X, y), (X[::-1], 2.0 * y[::-1])])
    np.testing.assert_allclose(first.predict(X), flow.predict(X), rtol=1e-9)
    alone = wf.FlowRegressor(**SMALL).fit(X[::-1], 2.0 * y[::-1])
    np.testing.assert_allclose(second.predict(X), alone.predict(X), rtol=1e-9)


def test_fit_many_has_log_rates_of_their_own(X):
    counts = np.random.default_rng(0).poisson(3.0, len(X)).astype(float)
    data = [(X, counts), (X, 100.0 * counts)]
    fitted = wf.fit_many([wf.SparseGPRegressor(likelihood="poisson", **SMALL_GP) for _ in data], data)
    for model, (_, y) in zip(fitted, data, strict=True):
        np.testing.assert_allclose(model.spec_.likelihood.log_rate, np.log(y.mean()), atol=0.01)
        alone = wf.SparseGPRegressor(likelihood="poisson", **SMALL_GP).fit(X, y)
        np.testing.assert_allclose(model.predict(X), alone.predict(X), rtol=1e-9)


def test_a_robust_scale_is_the_usual_one_without_outliers_and_hardly_moves_with_them():
    values = np.random.default_rng(0).normal(3.0, 2.0, (400, 1))
    usual, outliers = Scaler.of(values), values.copy()
    same = Scaler.robust(values)
    assert np.array_equal(same.mean, usual.mean) and np.array_equal(same.scale, usual.scale)
    for size in (1e3, 1e9, 1e90):
        outliers[:20] = size
        scaler = Scaler.robust(outliers)
        assert abs(scaler.mean[0] - 3.0) < 2.0 and scaler.scale[0] < 5.0 * usual.scale[0]
    mostly_zero = np.where(np.arange(400)[:, None] < 350, 0.0, values)
    assert np.array_equal(Scaler.robust(mostly_zero).scale, Scaler.of(mostly_zero).scale)
    outliers[:20] = 1e300  # its square is no number in units of the others
    assert np.array_equal(Scaler.robust(outliers).scale, Scaler.of(outliers).scale)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_scaler_centres_and_leaves_constant_columns(offset):
    values = np.column_stack([np.linspace(0.0, 2.0, 11), np.full(11, 0.1)]) + offset
    scaler = Scaler.of(values)
    scaled = scaler.forward(values)
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=1e-6)
    np.testing.assert_allclose(scaled[:, 0].std(), 1.0, rtol=1e-6)
    assert scaler.scale[1] == 1.0 and (np.abs(scaled[:, 1]) < 1e-7).all()
    np.testing.assert_allclose(scaler.inverse(scaled), values, rtol=1e-12)


def test_a_column_far_from_zero_is_scaled_as_beside_it_and_rounding_is_not():
    values = np.random.default_rng(0).normal(size=(200, 1))
    for unit, offset in ((1.0, 1e6), (1.0, 1e10), (1e-6, 1e6), (1e-150, 0.0), (1e150, 1e155)):
        for scaler in (Scaler.of(unit * values + offset), Scaler.of_seen(unit * values + offset)):
            z = scaler.forward(unit * values + offset)
            np.testing.assert_allclose(z, (values - values.mean()) / values.std(), atol=2e-3)
    constant = np.full((200, 1), 1e6 + 0.1) + np.spacing(1e6) * np.sign(values)
    assert Scaler.of(constant).scale == 1.0 == Scaler.of_seen(constant).scale


def test_missing_entries_do_not_count_in_a_scale():
    values = np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    holes = np.where(np.arange(50)[:, None] % 3 == 0, np.nan, values)
    holes[:, 1] = np.nan
    scaler = Scaler.of_seen(holes)
    np.testing.assert_allclose(scaler.mean, [np.nanmean(holes[:, 0]), 0.0])
    np.testing.assert_allclose(scaler.scale, [np.nanstd(holes[:, 0]), 1.0])


def test_scales_come_from_the_training_rows_alone(X, y, gp):
    assert np.array_equal(gp.x_scaler_.mean, X.mean(0)) or np.allclose(gp.x_scaler_.mean, X.mean(0), rtol=1e-13)
    before = gp.predict(X[:3])
    gp.predict(X + 100.0)
    assert np.array_equal(gp.predict(X[:3]), before)
