"""How many programs are compiled, and what is left of it in the process."""

import contextlib
import logging
import re

import jax
import numpy as np
import pytest
from small import SMALL, SMALL_CLASSES, SMALL_GP

import wishflow as wf
from wishflow.numerics.padding import size_class
from wishflow.training import chunk

pytestmark = pytest.mark.slow  # long where nothing is compiled yet: `make test-all` runs them

# Numbers of columns that no other test uses: their programs cannot be in JAX's memory yet.
COLUMNS = iter(range(7, 20))


@contextlib.contextmanager
def compilations():
    """The names of the functions that are compiled inside the context, also of those that come from a cache on disk."""
    names: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record):
            found = re.match(r"Finished XLA compilation of jit\((\w+)\)", record.getMessage())
            if found:
                names.append(found.group(1))

    logger, handler = logging.getLogger("jax"), Handler(level=logging.DEBUG)
    logger.addHandler(handler)
    try:
        with jax.log_compiles():
            yield names
    finally:
        logger.removeHandler(handler)


def data(n_rows, n_columns, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=n_rows)


def labelled(n_rows, n_columns):
    X, y = data(n_rows, n_columns)
    return X, y > np.median(y)


def test_one_program_serves_a_whole_fit():
    """Several chunks, warm-up and decay, and a last chunk that is shorter than the others."""
    with compilations() as names:
        model = wf.FlowRegressor(**{**SMALL, "max_iter": 230}).fit(*data(30, next(COLUMNS)))
    assert (model.history_["phase"] == "flow").sum() == 230
    assert names.count("train_chunk") == 1
    assert names.count("_value_and_grad") == 1


def test_a_classifier_needs_one_program_for_training_and_few_small_ones():
    """Where only the number of columns is new: Kzz, and what brings random starting values into shape."""
    wf.FlowClassifier(**SMALL_CLASSES).fit(*labelled(30, next(COLUMNS)))
    with compilations() as names:
        wf.FlowClassifier(**SMALL_CLASSES).fit(*labelled(30, next(COLUMNS)))
    assert names.count("train_chunk") == names.count("_kernel_matrix") == 1
    assert "_normal" not in names
    assert sum(name != "stage" for name in names) <= 10


def test_a_step_is_traced_once(monkeypatch):
    traced = []
    step = chunk.step
    monkeypatch.setattr(chunk, "step", lambda *args: traced.append(1) or step(*args))
    wf.FlowClassifier(**SMALL_CLASSES).fit(*labelled(30, next(COLUMNS)))
    assert len(traced) == 1


def test_minibatches_need_one_program_too():
    with compilations() as names:
        wf.FlowRegressor(batch_size=8, **{**SMALL, "max_iter": 120}).fit(*data(30, next(COLUMNS)))
    assert names.count("train_chunk") == 1


def test_data_of_one_size_class_share_programs():
    n_columns = next(COLUMNS)
    assert size_class(20) == size_class(31) != size_class(33)
    wf.FlowRegressor(**SMALL).fit(*data(20, n_columns)).predict(data(20, n_columns)[0])
    with compilations() as names:
        model = wf.FlowRegressor(random_state=5, learning_rate=0.5, **{**SMALL, "max_iter": 9})
        model.fit(*data(31, n_columns, seed=1)).predict(data(31, n_columns)[0])
    assert names == []
    with compilations() as names:
        wf.FlowRegressor(**SMALL).fit(*data(33, n_columns))
    assert names.count("train_chunk") == 1


def test_fewer_rows_than_inducing_points_share_programs():
    """The number of inducing points does not follow the number of rows."""
    n_columns = next(COLUMNS)
    wf.SparseGPRegressor(max_iter=3).fit(*data(12, n_columns))
    with compilations() as names:
        wf.SparseGPRegressor(max_iter=3).fit(*data(29, n_columns))
    assert names == []


def test_predictions_of_any_number_of_rows_need_three_programs(X, gp):
    rows = np.repeat(X, 30, axis=0)
    with compilations() as names:
        for n in (1, 2, 5, 31, 33, 60, 64, 100, 130, 200, 256, 257, 300, 513, 800):
            gp.predict(rows[:n])
    assert names.count("moments") <= 3 and names.count("_threefry_seed") <= 1
    # "stage" is JAX's own, for arrays on their way to the device; the seed's is there where no test made a key before
    assert set(names) <= {"moments", "stage", "_threefry_seed"}


def test_a_model_from_a_file_needs_no_program_of_its_own(X, gp, tmp_path):
    gp.predict(X)
    gp.save(tmp_path / "model")
    with compilations() as names:
        wf.load(tmp_path / "model").predict(X)
    assert set(names) <= {"stage"}  # JAX's own, for arrays of a shape that no earlier test brought to the device


@pytest.mark.parametrize("is_on", [False, True])
def test_settings_of_jax_are_left_as_they_were(is_on, X, y, tmp_path):
    """Neither a fit nor predictions, files or errors change the precision of the user's own arrays."""
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_default_matmul_precision")}
    with jax.enable_x64(is_on):
        wanted = np.float64 if is_on else np.float32
        model = wf.SparseGPRegressor(**SMALL_GP).fit(X, y)
        results = [model.predict(X), model.log_prob(X, y), model.sample_y(X), model.predict_interval(X)]
        model.save(tmp_path / "model")
        wf.load(tmp_path / "model")
        with pytest.raises(ValueError):
            model.set_params(kernel="none").fit(X, y)
        assert jax.numpy.ones(3).dtype == wanted
    assert all(part.dtype == np.float64 for part in results)
    assert {name: getattr(jax.config, name) for name in before} == before


def test_the_precision_of_the_process_does_not_change_results(X, y, gp):
    with jax.enable_x64(True), jax.default_matmul_precision("bfloat16"):
        other = wf.SparseGPRegressor(**SMALL_GP).fit(X, y)
        inside = other.predict(X)
    assert np.array_equal(inside, gp.predict(X))
    assert np.array_equal(other.predict(X), inside)
