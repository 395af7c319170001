"""Model files: exact round trips, atomic writes, damage found, nothing executed."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

import wishflow.files as files
import wishflow.files.model_file as model_file
import wishflow.files.writing as writing
from wishflow.errors import ModelFileError, PrecisionError
from wishflow.files.trust import check_finite

STORED_TYPES = sorted(model_file._DTYPES)


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@pytest.fixture
def model(tmp_path):
    """A small file with a header and arrays that are hard to keep."""
    arrays = {
        "special": np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 5e-324, -2.2e-308, np.pi, 1 + 2**-52]),
        "payload": np.array([0x7FF8000000000BAD], np.uint64).view(np.float64),
        "scalar": np.array(1 / 3),
        "empty": np.zeros((0, 3)),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(10.0)[::-3],
        "count": np.array(7, np.int64),
        "mask": np.array([True, False]),
    }
    header = {"kind": "Demo", "names": ["α", "b.c"], "depth": {"x": [1, 2.5, None, True, 1e-300]}}
    path = tmp_path / "model.safetensors"
    files.write_model(path, header, arrays)
    return path, header, arrays


# --- round trip ------------------------------------------------------------------------------


def test_round_trip_keeps_every_bit(model):
    path, header, arrays = model
    read_header, read_arrays = files.read_model(str(path))
    assert sorted(read_arrays) == sorted(arrays)
    for name, array in arrays.items():
        assert_same_bits(read_arrays[name], np.asarray(array, order="C"))
    assert {key: value for key, value in read_header.items() if key != "file"} == header


@hypothesis.settings(
    max_examples=60, deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(data=st.data())
def test_round_trip_of_any_array(tmp_path, data):
    dtype = np.dtype(data.draw(st.sampled_from(STORED_TYPES)))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    bits = data.draw(st.binary(min_size=size, max_size=size))
    stored = np.frombuffer(bytes(b & 1 for b in bits) if dtype.kind == "b" else bits, dtype).reshape(shape)
    files.write_model(tmp_path / "any", {}, {"x": stored})
    assert_same_bits(files.read_model(tmp_path / "any")[1]["x"], stored)


def test_big_endian_arrays_keep_their_values(tmp_path):
    files.write_model(tmp_path / "m", {}, {"x": np.array([1.5, -2.0], ">f8")})
    assert_same_bits(files.read_model(tmp_path / "m")[1]["x"], np.array([1.5, -2.0]))


def test_read_arrays_can_be_changed_and_the_file_replaced(model):
    """Arrays are copies: no part of the file stays open or mapped into memory."""
    path, header, _ = model
    _, arrays = files.read_model(path)
    before = arrays["special"].copy()
    files.write_model(path, header, {"special": np.zeros(9)})
    assert_same_bits(arrays["special"], before)
    arrays["special"][0] = 1.0


def test_header_names_format_versions_and_time(model):
    about = files.read_model(model[0])[0]["file"]
    assert about["format"] == "wishflow-model" and about["format_version"] == 2
    assert about["versions"]["jax"] == jax.__version__ and about["versions"]["numpy"] == np.__version__
    assert set(about["versions"]) == {"wishflow", "jax", "numpy", "python"}
    assert about["created"].endswith("+00:00")


def test_saving_a_read_header_again_renews_only_the_file_entry(model, tmp_path):
    path, _, _ = model
    header, arrays = files.read_model(path)
    files.write_model(tmp_path / "again", {**header, "file": "stale"}, arrays)
    again, _ = files.read_model(tmp_path / "again")
    assert again["file"]["versions"] == header["file"]["versions"]
    assert {**again, "file": 0} == {**header, "file": 0}


def test_header_comes_back_as_plain_values(tmp_path):
    """Text that looks like a class to import or an object to build stays text."""
    header = {
        "__class__": "os.system",
        "py/object": "builtins.eval",
        "n": np.int64(3),
        "shape": (1, 2),
        "v": np.array([0.1]),
    }
    files.write_model(tmp_path / "m", header, {})
    read, arrays = files.read_model(tmp_path / "m")
    del read["file"]
    assert read == {"__class__": "os.system", "py/object": "builtins.eval", "n": 3, "shape": [1, 2], "v": [0.1]}
    assert [type(value) for value in read.values()] == [str, str, int, list, list]
    assert arrays == {}


def test_modules_use_neither_pickle_nor_a_class_of_the_package():
    for path in Path(files.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        assert not imported & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "importlib"}
        above = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level > 1}
        assert above <= {"errors", "numerics.devices"}
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert not called & {"eval", "exec", "__import__"}


def test_reading_and_writing_import_no_jax(tmp_path):
    code = (
        "import sys, types; package = types.ModuleType('wishflow'); "  # the package root may import JAX
        f"package.__path__ = [{os.path.dirname(os.path.dirname(files.__file__))!r}]; "
        "sys.modules['wishflow'] = package; "
        "from wishflow import files; import numpy as np; "
        f"path = {str(tmp_path / 'm')!r}; files.write_model(path, {{}}, {{'x': np.ones(2)}}); files.read_model(path); "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- what cannot be written ------------------------------------------------------------------


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.zeros(2, np.complex128)], ids=["text", "object", "c16"]
)
def test_types_that_would_not_come_back_are_refused(tmp_path, array):
    with pytest.raises(ModelFileError, match="array 'x' has type"):
        files.write_model(tmp_path / "m", {}, {"x": array})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "header", [{"f": len}, {"x": float("nan")}, {"x": [np.inf]}, {1: "a"}, {"x": {2: 3}}, {"x": {1, 2}}]
)
def test_headers_that_json_cannot_keep_are_refused(tmp_path, header):
    with pytest.raises(ModelFileError, match="header cannot be written as JSON"):
        files.write_model(tmp_path / "m", header, {})
    assert list(tmp_path.iterdir()) == []


def test_reserved_name_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="rename"):
        files.write_model(tmp_path / "m", {}, {"__metadata__": np.ones(1)})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_what_is_no_file_is_not_replaced_by_one(tmp_path):
    """As root, `save("/dev/null")` would leave the machine without that device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="a device, a pipe or a socket"):
        files.write_bytes_atomic(pipe, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe"]


def test_missing_folder_says_to_create_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no folder .*; create it first"):
        files.write_model(tmp_path / "absent" / "m", {}, {})
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        files.write_json_atomic(tmp_path, {})


# --- atomic writes ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["disk", "interrupt"])
def test_interrupted_write_leaves_the_old_file_and_no_litter(model, monkeypatch, name, error):
    path, header, _ = model
    before = path.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(type(error)):
        files.write_model(path, header, {"x": np.zeros(3)})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_new_content_is_on_disk_before_it_takes_the_place_of_the_old(model, monkeypatch):
    path, header, _ = model
    before, order = path.read_bytes(), []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(descriptor):
        order.append(("fsync", os.fstat(descriptor).st_size, path.read_bytes() == before))
        real_fsync(descriptor)

    def replace(source, target):
        order.append(("replace", os.path.getsize(source), path.read_bytes() == before))
        assert os.path.dirname(source) == os.path.dirname(target)  # a rename across file systems is not atomic
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    files.write_model(path, header, {"x": np.zeros(3)})
    size = path.stat().st_size
    assert order[:2] == [("fsync", size, True), ("replace", size, True)]
    assert [name for name, _, _ in order[2:]] == ["fsync"]  # of the folder, which holds the new name


def test_links_are_followed_and_rights_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    files.write_json_atomic(tmp_path / "link", 1)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "1\n"
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_file_keeps_its_rights(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o600)
    files.write_json_atomic(path, 1)
    assert path.read_text() == "1\n" and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    names = {}
    for name, process in (("mine", killed.pid), ("other", killed.pid), ("mine", os.getpid())):
        names[name, process] = tmp_path / f".{name}.{writing._machine()}-{process}-{'0' * 16}.tmp"
        names[name, process].write_text("half")
    elsewhere = tmp_path / f".mine.00000000-{killed.pid}-{'0' * 16}.tmp"  # of another machine
    elsewhere.write_text("half")
    files.write_json_atomic(tmp_path / "mine", 1)
    assert not names["mine", killed.pid].exists()
    assert names["other", killed.pid].exists() and names["mine", os.getpid()].exists() and elsewhere.exists()
    os.utime(elsewhere, (0, 0))
    files.write_json_atomic(tmp_path / "mine", 1)
    assert not elsewhere.exists()


def test_names_as_long_as_they_may_be(tmp_path):
    """Names have at most 255 bytes, which these letters take three of each."""
    path = tmp_path / ("模" * 75)
    files.write_json_atomic(path, 1)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names are text elsewhere")
def test_names_that_are_no_text(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    files.write_json_atomic(path, 1)
    assert [os.fsencode(one.name) for one in tmp_path.iterdir()] == [b"\xff.json"]


def test_all_that_killed_processes_left_in_a_folder_is_removed(tmp_path):
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    names = [f".{name}.{writing._machine()}-{killed.pid}-{'0' * 16}.tmp" for name in ("a", "b.c")]
    mine = f".a.{writing._machine()}-{os.getpid()}-{'0' * 16}.tmp"
    for name in (*names, mine, "a.tmp"):
        (tmp_path / name).write_text("half")
    writing.remove_all_left_over(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {mine, "a.tmp"}


def test_a_folder_that_can_be_written_to_but_not_listed(tmp_path, monkeypatch):
    def iterdir(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", iterdir)
    files.write_json_atomic(tmp_path / "mine", 1)
    assert (tmp_path / "mine").read_text() == "1\n"


def test_json_results_are_plain_and_strict(tmp_path):
    data = {"x": np.float64(0.1), "n": np.arange(2), "bad": [float("nan"), -np.inf], "where": tmp_path, "t": (1, "ä")}
    files.write_json_atomic(tmp_path / "r.json", data)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    read = json.loads(text, parse_constant=refuse)
    assert read == {"x": 0.1, "n": [0, 1], "bad": [None, None], "where": str(tmp_path), "t": [1, "ä"]}
    with pytest.raises(TypeError, match="function"):
        files.write_json_atomic(tmp_path / "r.json", {"f": refuse})
    assert (tmp_path / "r.json").read_text(encoding="utf-8") == text


def test_json_that_is_nested_without_end_is_none(tmp_path):
    (tmp_path / "r.json").write_text("[" * 200_000)
    assert files.read_json(tmp_path / "r.json") is None


# --- damage ----------------------------------------------------------------------------------


def test_every_flipped_byte_is_detected(tmp_path):
    path = tmp_path / "m"
    files.write_model(
        path, {"a": 1.5, "name": "x"}, {"x": np.arange(3.0), "y": np.array(2, np.int32), "e": np.zeros((0, 2))}
    )
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(len(good)):
        for mask in (1, int(rng.integers(2, 256))):
            path.write_bytes(good[:place] + bytes([good[place] ^ mask]) + good[place + 1 :])
            if good[place] == 0x20 and (good[place] ^ mask) in b"\t\n\r":
                continue  # white space for white space between the parts of the file's own header
            with pytest.raises(ModelFileError):
                files.read_model(path)


def test_cut_or_lengthened_files_are_refused(model):
    path, _, _ = model
    good = path.read_bytes()
    for bad in (b"", good[:5], good[:100], good[:-1], good + b"\0"):
        path.write_bytes(bad)
        with pytest.raises(ModelFileError, match=r"cannot be read.*save the model again"):
            files.read_model(path)


def test_swapped_arrays_are_detected(model):
    """The checksum ties bytes to names, types and shapes, not only to their order."""
    path, _, _ = model
    with safetensors.safe_open(path, framework="np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for change in (
        {"scalar": arrays["payload"].reshape(()), "payload": arrays["scalar"].reshape(1)},
        {"scalar": arrays["scalar"].reshape(1)},
        {"count": arrays["count"].view(np.uint64)},
    ):
        safetensors.numpy.save_file({**arrays, **change}, path, metadata)
        with pytest.raises(ModelFileError, match="checksum"):
            files.read_model(path)
    safetensors.numpy.save_file(arrays, path, metadata)
    files.read_model(path)


def rewrite(path, **changes):
    with safetensors.safe_open(path, framework="np") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metadata = {**metadata, **changes}
    metadata["sha256"] = model_file.checksum(metadata["header"], arrays)
    safetensors.numpy.save_file(arrays, path, metadata)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "format 'other', expected 'wishflow-model'"),
        ({"format_version": "3"}, "format version 3, but .* up to 2; update wishflow"),
        ({"format_version": "0"}, "format version '0', expected one of"),
        ({"format_version": "one"}, "format version 'one', expected one of"),
        ({"header": "[1]"}, "not a JSON object"),
        ({"header": "{"}, "not a JSON object"),
        ({"header": "[" * 100_000}, "not a JSON object"),
    ],
)
def test_other_formats_and_versions_are_refused(model, changes, message):
    rewrite(model[0], **changes)
    with pytest.raises(ModelFileError, match=message):
        files.read_model(model[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": "1"},
        {"header": "{}"},
        {"header": '{"file": 2}'},
        {"header": '{"file": {"format_version": 1}}'},
    ],
)
def test_the_format_version_is_that_of_the_header(model, changes):
    """The checksum covers the header: another version in the metadata alone is noticed."""
    rewrite(model[0], **changes)
    with pytest.raises(ModelFileError, match="its header gives another"):
        files.read_model(model[0])


def test_files_of_other_programs_are_refused(tmp_path):
    safetensors.numpy.save_file({"x": np.ones(2)}, tmp_path / "plain")
    with pytest.raises(ModelFileError, match="format None"):
        files.read_model(tmp_path / "plain")
    (tmp_path / "text").write_text("once upon a time there was a file")
    with pytest.raises(ModelFileError, match="not a wishflow model file"):
        files.read_model(tmp_path / "text")
    with pytest.raises(ModelFileError, match="is not a file"):
        files.read_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="check the path"):
        files.read_model(tmp_path / "absent")


# --- trees -----------------------------------------------------------------------------------


class Inner(eqx.Module):
    raw: jax.Array
    floor: float = eqx.field(static=True)


class Pair(NamedTuple):
    left: jax.Array
    right: jax.Array


class Outer(eqx.Module):
    inner: Inner
    parts: list
    table: dict
    plain: float
    nothing: None = None


def tree_of(scale: float) -> Outer:
    parts = [jnp.full((2, 0), scale), Pair(jnp.asarray(scale), jnp.arange(3) * int(scale))]
    table = {"a.b": np.full(2, scale), "a": {"b": np.float64(scale)}, "key": jax.random.key(int(scale))}
    return Outer(Inner(jnp.array([-0.0, scale, jnp.inf, 5e-324]), 0.5), parts, table, plain=scale)


def test_names_are_dotted_paths():
    assert list(files.flatten_arrays(tree_of(2.0))) == [
        "inner.raw",
        "parts.0",
        "parts.1.left",
        "parts.1.right",
        "table.a.b",
        "table.a\\.b",
        "table.key",
    ]
    assert list(files.flatten_arrays(jnp.ones(2))) == ["array"]


@pytest.mark.parametrize("abstract", [False, True], ids=["values", "shapes"])
def test_tree_survives_the_file(tmp_path, abstract):
    tree, template = tree_of(3.0), tree_of(8.0)
    if abstract:  # random keys need a template that knows their kind
        template = eqx.tree_at(lambda t: t.inner, template, jax.eval_shape(lambda: template.inner))
    files.write_model(tmp_path / "m", {}, files.flatten_arrays(tree))
    restored = files.unflatten_arrays(template, files.read_model(tmp_path / "m")[1])
    before, after = files.flatten_arrays(tree), files.flatten_arrays(restored)
    for name in before:
        assert_same_bits(before[name], after[name])
    kinds = [type(leaf) for leaf in jax.tree.leaves(tree)]
    assert [type(leaf) for leaf in jax.tree.leaves(restored)] == kinds
    assert restored.plain == 8.0  # no array: part of the structure, from the template
    assert jax.random.uniform(restored.table["key"]) == jax.random.uniform(tree.table["key"])


def test_flattened_arrays_do_not_share_memory():
    tree = {"x": np.zeros(2)}
    flat = files.flatten_arrays(tree)
    restored = files.unflatten_arrays(tree, flat)
    tree["x"][0] = 1.0
    assert flat["x"][0] == 0.0
    flat["x"][1] = 5.0
    assert restored["x"].tolist() == [0.0, 0.0]


def test_differences_are_listed():
    template = {"a": jnp.ones(2), "b": jnp.ones(3), "c": jnp.ones((), jnp.float32), "d": np.ones(1)}
    arrays = {"b": np.ones((3, 1)), "c": np.ones(()), "d": np.ones(1), "e": np.ones(1)}
    with pytest.raises(ModelFileError) as caught:
        files.unflatten_arrays(template, arrays)
    message = str(caught.value)
    assert "'a' is missing" in message
    assert "'b' has shape (3, 1), expected (3,)" in message
    assert "'c' has type float64, expected float32" in message
    assert "'e' is not part of the model" in message
    assert "'d'" not in message


def test_long_lists_of_differences_are_cut():
    with pytest.raises(ModelFileError, match="and 15 more"):
        files.unflatten_arrays({}, {f"x{i}": np.ones(1) for i in range(25)})


def test_double_precision_is_never_halved_without_a_word():
    tree = {"x": jnp.ones(2)}
    flat = files.flatten_arrays(tree)
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="'x' holds float64"):
        files.unflatten_arrays(tree, flat)


def test_names_that_would_clash_are_refused():
    class Key:
        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            return self.rank < other.rank

        def __repr__(self):
            return "key"

    with pytest.raises(ModelFileError, match="named 'key'"):
        files.flatten_arrays({Key(0): np.ones(1), Key(1): np.ones(1)})


def test_logarithms_of_variances_that_would_overflow_are_refused():
    """Such a file loaded, and its predictions were not finite."""
    check_finite({"model.log_variances": np.array([-1e3, 300.0])}, ("model.",))
    with pytest.raises(ModelFileError, match="logarithms"):
        check_finite({"model.log_variances": np.array([0.0, 1e30])}, ("model.",))
