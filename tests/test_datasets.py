"""Loaders with checksums, splits by rule, and the simulated problem against its own closed forms."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import threading
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest

from wishflow import datasets
from wishflow.datasets import originals, registry, simulated, storage
from wishflow.errors import DataError, DatasetError, OptionError

DATA = os.environ.get("WISHFLOW_DATA", "")
TABLES = sorted({entry.table.file: entry.table for entry in registry.ENTRIES.values()}.values(), key=lambda t: t.file)
SHAPES = {
    "boston": (506, 13),
    "concrete": (1030, 8),
    "kin8nm": (8192, 8),
    "naval": (11934, 16),
    "power": (9568, 4),
    "protein": (45730, 9),
    "wine_white": (4898, 11),
    "bike": (17379, 12),
    "bike_paper": (17379, 14),
}
needs_data = pytest.mark.skipif(
    not (Path(DATA) / "uci").is_dir(), reason="needs the tables: set WISHFLOW_DATA to a folder that holds uci/"
)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder and no data folder."""
    monkeypatch.delenv("WISHFLOW_DATA", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "wishflow" / "data"


@pytest.fixture
def serve(monkeypatch):
    """Make every download answer with the given bytes, or raise; returns the list of addresses asked for."""

    def start(answer):
        asked = []

        def urlopen(request, timeout):
            asked.append(request.full_url)
            if isinstance(answer, Exception):
                raise answer
            return io.BytesIO(answer)

        monkeypatch.setattr(urllib.request, "urlopen", urlopen)
        return asked

    return start


@pytest.fixture
def toy(monkeypatch):
    """A data set of three rows under the name `toy`, whose original is a blank-separated file in an archive."""
    original, text = b" 1.0   2.50\n3 4\n 5e-1 6\n", "a,b\n1.0,2.50\n3,4\n5e-1,6\n"
    source = registry.Original("https://example.org/toy.zip", _sha(original), originals.from_blanks, member="toy.txt")
    table = registry.Table("toy", ("a", "b"), _sha(text.encode()), "https://example.org/toy", source)
    monkeypatch.setitem(registry.ENTRIES, "toy", registry.Entry("toy", table, "Three rows."))
    return table, original, text


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _zip(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


# --- the table of entries --------------------------------------------------------------------


def test_names_and_inputs_are_the_agreed_ones():
    assert set(datasets.UCI_NAMES) == set(SHAPES)
    assert {name: len(registry.entry_of(name).features) for name in SHAPES} == {n: s[1] for n, s in SHAPES.items()}


def test_no_input_reveals_the_target():
    assert not {"casual", "registered", "cnt", "instant", "dteday"} & set(registry.entry_of("bike").features)
    assert {"casual", "registered"} < set(registry.entry_of("bike_paper").features)
    assert "kMt" not in registry.entry_of("naval").features


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.file)
def test_checksums_are_well_formed_and_sources_are_encrypted(table):
    hashes = [table.sha256] + ([table.original.sha256] if table.original else [])
    assert all(len(value) == 64 and int(value, 16) for value in hashes)
    assert table.original is None or table.original.url.startswith("https://")


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(OptionError, match="'bsoton' is not known; expected one of 'boston'"):
        datasets.load_uci("bsoton")


# --- finding, checking, downloading ----------------------------------------------------------


def test_download_is_checked_converted_kept_and_then_read_from_the_cache(cache, serve, toy):
    table, original, text = toy
    asked = serve(_zip("some folder/toy.txt", original))
    data = datasets.load_uci("toy")
    np.testing.assert_array_equal(data.X, [[1.0], [3.0], [0.5]])
    np.testing.assert_array_equal(data.y, [2.5, 4.0, 6.0])
    assert asked == ["https://example.org/toy.zip"]
    kept = storage.table_path(cache, table)
    assert gzip.decompress(kept.read_bytes()).decode() == text
    assert [path.name for path in kept.parent.iterdir()] == ["toy.csv.gz"]

    serve(AssertionError("the cache was not used"))
    np.testing.assert_array_equal(datasets.load_uci("toy").X, data.X)


def test_data_folder_goes_before_the_cache(cache, toy, tmp_path, monkeypatch):
    table, _, text = toy
    storage.write_table(storage.table_path(cache, table), "wrong\n")
    monkeypatch.setenv("WISHFLOW_DATA", str(tmp_path / "named"))
    storage.write_table(storage.table_path(tmp_path / "named", table), text)
    assert datasets.load_uci("toy").X.shape == (3, 1)


def test_wrong_original_is_refused_with_both_hashes_and_nothing_is_kept(cache, serve, toy):
    table, original, _ = toy
    damaged = original + b"7 8\n"
    serve(_zip("toy.txt", damaged))
    with pytest.raises(DatasetError) as caught:
        datasets.load_uci("toy")
    assert _sha(damaged) in str(caught.value) and table.original.sha256 in str(caught.value)
    assert not cache.exists()


@pytest.mark.parametrize(
    "answer", [b"<html>moved</html>", _zip("readme.txt", b"")], ids=["no archive", "other archive"]
)
def test_an_answer_without_the_file_is_refused(cache, serve, toy, answer):
    serve(answer)
    with pytest.raises(DatasetError, match=r"not a zip archive that contains toy\.txt"):
        datasets.load_uci("toy")


def _zips(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _encrypted() -> bytes:
    """Marked as encrypted: bit 0 of the flags, in the entry and in the directory."""
    content = bytearray(_zips({"toy.txt": b"1 2\n"}))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def _no_deflate() -> bytes:
    """Bytes of the compressed content that no encoder writes."""
    content = bytearray(_zips({"toy.txt": b"1 2\n" * 1000}))
    content[37:45] = b"\xff" * 8
    return bytes(content)


def _nested(depth: int) -> bytes:
    return _zips({"x.zip": _nested(depth - 1)}) if depth else _zips({"toy.txt": b"1"})


TRAPS = {
    "bomb": lambda: _zips({"other.csv": bytes(2**21)}),
    "many": lambda: _zips({f"{i}.csv": bytes(2**18) for i in range(8)}),
    "encrypted": _encrypted,
    "damaged": _no_deflate,
    "nested": lambda: _nested(3),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_archives_that_are_traps(trap, cache, serve, toy, monkeypatch):
    monkeypatch.setattr(storage, "MOST_BYTES", 2**20)
    content = TRAPS[trap]()
    assert len(content) < 2**20
    serve(content)
    with pytest.raises(DatasetError, match=r"not a zip archive that contains toy\.txt \("):
        datasets.load_uci("toy")


def test_downloads_have_a_largest_size_and_a_longest_time(cache, serve, toy, monkeypatch):
    serve(bytes(2**20))
    monkeypatch.setattr(storage, "MOST_BYTES", 2**19)
    with pytest.raises(DatasetError, match="more than 524288 bytes were received"):
        datasets.load_uci("toy")
    monkeypatch.setattr(storage, "MOST_BYTES", 2**30)
    clock = iter(range(0, 10**6, 100))  # each piece takes a hundred seconds
    monkeypatch.setattr("wishflow.datasets.storage.time.monotonic", lambda: next(clock))
    with pytest.raises(DatasetError, match="not complete after 900 seconds"):
        datasets.load_uci("toy")


def test_headers_that_drip_end_with_the_longest_time(cache, toy, monkeypatch):
    """No limit of a socket counts them: each byte is in time."""
    is_over = threading.Event()
    monkeypatch.setattr(urllib.request, "urlopen", lambda *args, **options: is_over.wait(60))
    monkeypatch.setattr(storage, "TOTAL_SECONDS", 0.1)
    try:
        with pytest.raises(DatasetError, match=r"not complete after 0.1 seconds"):
            datasets.load_uci("toy")
    finally:
        is_over.set()


def test_a_local_table_that_unpacks_to_too_much_is_an_error(tmp_path, toy, monkeypatch):
    monkeypatch.setattr(storage, "MOST_BYTES", 2**20)
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(2**21)))
    with pytest.raises(DatasetError, match="more than 1048576 bytes"):
        storage.read_verified(path, toy[0])


@pytest.mark.parametrize(
    "error", [urllib.error.URLError("no route"), TimeoutError("timed out"), ConnectionResetError()]
)
def test_offline_error_says_where_it_looked_and_what_to_do(cache, serve, monkeypatch, tmp_path, error):
    serve(error)
    monkeypatch.setenv("WISHFLOW_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DatasetError) as caught:
        datasets.load_uci("boston")
    message, table = str(caught.value), registry.entry_of("boston").table
    for part in (table.original.url, str(tmp_path / "nowhere"), str(cache), "Set WISHFLOW_DATA", "uci/boston.csv.gz"):
        assert part in message


def test_concrete_is_never_downloaded_in_another_version(cache, serve):
    asked = serve(b"")
    with pytest.raises(DatasetError, match=r"no source to download.*WISHFLOW_DATA is not set.*uci/concrete.csv.gz"):
        datasets.load_uci("concrete")
    assert asked == []


@pytest.mark.parametrize("content", [gzip.compress(b"a,b\n1,2\n"), b"a,b\n1,2\n", b""], ids=["other", "plain", "empty"])
def test_a_wrong_local_file_is_an_error_and_never_replaced(cache, serve, toy, content):
    asked = serve(b"")
    path = storage.table_path(cache, toy[0])
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="delete it"):
        datasets.load_uci("toy")
    assert path.read_bytes() == content and asked == []


def test_a_cache_that_cannot_be_written_costs_a_warning_only(cache, serve, toy):
    serve(_zip("toy.txt", toy[1]))
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="could not be saved"):
        assert datasets.load_uci("toy").X.shape == (3, 1)


def test_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        storage.write_table(tmp_path / "uci" / "toy.csv.gz", "a\n")
    assert list((tmp_path / "uci").iterdir()) == []


# --- converters ------------------------------------------------------------------------------


def test_converters_keep_digits_and_put_the_target_last():
    columns = ("a", "b", "c")
    assert originals.from_blanks(b"  1.50 2  3e-1\r\n", columns) == "a,b,c\n1.50,2,3e-1\n"
    assert originals.from_comma_separated(b'"a","b","c"\n  1.50,  2, 3\n', columns) == "a,b,c\n1.50,2,3\n"
    assert originals.from_semicolon_separated(b'"a";"b";"c"\r\n1;2;3', columns) == "a,b,c\n1,2,3\n"
    assert originals.from_target_first(b"c,a,b\n3,1,2\n", columns) == "a,b,c\n1,2,3\n"


def test_workbook_converter_reads_the_first_sheet_with_the_shortest_digits():
    sheet = (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c></row>'
        '<row r="2"><c r="A2"><v>8.3399999999999999</v></c><c r="B2"><v>40</v></c><c r="C2"/></row>'
        '<row r="3"/></sheetData></worksheet>'
    )
    workbook = _zip("xl/worksheets/sheet1.xml", sheet.encode())
    assert originals.from_workbook(workbook, ("a", "b")) == "a,b\n8.34,40\n"


BOSTON_WIDTHS = (8, 7, 8, 3, 8, 8, 7, 8, 4, 7, 7, 7, 7, 7)


def _quoted(cells, separator):
    return separator.join(f'"{cell}"' for cell in cells)


def _published(name: str, rows: list[list[str]]) -> str:
    """The original text, written again from our table by the format of its authors."""
    header, body = rows[0], rows[1:]
    if name == "boston":
        return "".join("".join(c.rjust(w) for c, w in zip(row, BOSTON_WIDTHS, strict=True)) + "\n" for row in body)
    if name == "kin8nm":
        return _quoted(header, ",") + "\n" + "".join(", ".join(row) + "\n" for row in body)
    if name == "naval":
        return "".join("".join("   " + c for c in [*row[:16], row[17], row[16]]) + "\n" for row in body)
    if name == "protein":
        lines = [",".join([row[-1], *row[:-1]]) for row in body]
        return _quoted([header[-1], *header[:-1]], ",") + "\n" + "\n".join(lines) + "\n"
    if name == "wine_white":
        return _quoted(header, ";") + "\n" + "".join(";".join(row) + "\n" for row in body)
    return "".join(",".join(row) + "\r\n" for row in rows)  # bike


@needs_data
@pytest.mark.parametrize("name", ["boston", "kin8nm", "naval", "protein", "wine_white", "bike"])
def test_the_published_originals_become_our_tables(name, cache, serve):
    """The whole way with real bytes: what is served has the hash of the published file; what is kept is our table."""
    table = registry.entry_of(name).table
    text = storage.read_verified(storage.table_path(Path(DATA), table), table)
    content = _published(name, [line.split(",") for line in text.splitlines()]).encode()
    # The hash of the published file is not ours to choose: this holds only if the bytes are the original ones.
    assert _sha(content) == table.original.sha256
    serve(content if table.original.member is None else _zip(f"folder/{table.original.member}", content))
    datasets.load_uci(name)
    assert gzip.decompress(storage.table_path(cache, table).read_bytes()).decode() == text


# --- the data themselves ---------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.filterwarnings("ignore:bike_paper leaks")
def test_every_data_set_loads_with_its_known_shape(name):
    data = datasets.load_uci(name)
    assert data.X.shape == SHAPES[name] and data.y.shape == SHAPES[name][:1]
    assert data.X.dtype == data.y.dtype == np.float64
    assert np.isfinite(data.X).all() and np.isfinite(data.y).all()
    assert len(data.feature_names) == data.X.shape[1] and data.target_name not in data.feature_names


@needs_data
def test_known_facts_about_the_data():
    naval = datasets.load_uci("naval")
    column = dict(zip(naval.feature_names, naval.X.T, strict=True))
    assert np.ptp(column["T1"]) == np.ptp(column["P1"]) == 0 and (column["Ts"] == column["Tp"]).all()
    assert (naval.y.min(), naval.y.max()) == (0.95, 1.0)
    with pytest.warns(UserWarning, match="leaks its target"):
        paper = datasets.load_uci("bike_paper")
    np.testing.assert_array_equal(paper.X[:, -2:].sum(1), paper.y)
    np.testing.assert_array_equal(paper.X[:, :-2], datasets.load_uci("bike").X)


@needs_data
def test_frames_hold_the_same_numbers_with_names():
    frame, arrays = datasets.load_uci("boston", return_frame=True), datasets.load_uci("boston")
    assert tuple(frame.X.columns) == arrays.feature_names and frame.y.name == "MEDV"
    np.testing.assert_array_equal(frame.X.to_numpy(), arrays.X)
    np.testing.assert_array_equal(frame.y.to_numpy(), arrays.y)


# --- splits ----------------------------------------------------------------------------------


def test_split_follows_the_published_rule():
    train, test = datasets.split(506, 3)
    order = np.random.default_rng(1003).permutation(506)
    np.testing.assert_array_equal(test, order[:50])
    np.testing.assert_array_equal(train, order[50:])


def test_validation_rows_come_from_the_training_rows_only():
    train, test = datasets.split(1030, 0)
    fit, validation = datasets.validation_split(train, 0)
    assert len(validation) == 92
    assert sorted([*fit, *validation]) == sorted(train)
    assert not set(validation) & set(test)
    again = datasets.validation_split(train, 0)[1]
    np.testing.assert_array_equal(again, validation)
    assert set(datasets.validation_split(train, 1)[1]) != set(validation)


def test_split_refuses_what_it_cannot_do():
    with pytest.raises(OptionError, match="at least 10"):
        datasets.split(9, 0)
    with pytest.raises(OptionError, match="index=-1"):
        datasets.split(100, -1)


# --- the simulated problem -------------------------------------------------------------------


@pytest.fixture(scope="module")
def flow():
    return datasets.make_heteroskedastic_2d(600)


def test_simulation_is_reproducible_and_pickles(flow):
    again = datasets.make_heteroskedastic_2d(600)
    np.testing.assert_array_equal(again.X, flow.X)
    np.testing.assert_array_equal(again.y, flow.y)
    assert not np.array_equal(datasets.make_heteroskedastic_2d(600, random_state=1).y, flow.y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(flow)).y, flow.y)


def test_covariance_has_the_stated_axes(flow):
    """Σ(x) e = s² e for e = (cos θ, sin θ), 0.09 s² across; the ellipses grow upwards and turn to the right."""
    x = np.random.default_rng(0).uniform(-2, 2, (50, 2))
    covariance = flow.covariance(x)
    theta, size = 0.5 * x[:, 0], 0.1 + 0.7 / (1 + np.exp(-2.5 * x[:, 1]))
    along, across = np.stack([np.cos(theta), np.sin(theta)], -1), np.stack([-np.sin(theta), np.cos(theta)], -1)
    np.testing.assert_allclose(np.einsum("nij,nj->ni", covariance, along), size[:, None] ** 2 * along, atol=1e-12)
    np.testing.assert_allclose(
        np.einsum("nij,nj->ni", covariance, across), 0.09 * size[:, None] ** 2 * across, atol=1e-12
    )


def test_short_paths_have_the_stated_drift_and_covariance(flow):
    """One Euler–Maruyama step of length 1: mean x + μ(x), covariance Σ(x), within 5 standard errors."""
    x, n = np.array([[0.3, 0.8], [-1.0, -0.5]]), 100_000
    ends = simulated.simulate_endpoints(x, n, np.random.default_rng(0), n_steps=1)
    for i, point in enumerate(x):
        sigma = flow.covariance(point)
        error = 5 * np.sqrt(np.diag(sigma) / n)
        assert (np.abs(ends[:, i].mean(0) - point - flow.drift(point)) < error).all()
        spread = np.sqrt((np.outer(np.diag(sigma), np.diag(sigma)) + sigma**2) / n)
        assert (np.abs(np.cov(ends[:, i].T) - sigma) < 5 * spread).all()


def test_finer_steps_do_not_change_the_law(flow):
    x = np.array([[0.6, 1.1], [0.0, -1.5], [1.5, 0.5]])
    coarse, fine = (
        flow.output(simulated.simulate_endpoints(x, 20_000, np.random.default_rng(steps), steps))
        for steps in (simulated.N_STEPS, 3 * simulated.N_STEPS)
    )
    np.testing.assert_allclose(coarse.mean(0), fine.mean(0), atol=0.03)
    np.testing.assert_allclose(coarse.std(0), fine.std(0), atol=0.03)


def test_targets_are_heteroskedastic_skewed_and_bimodal_in_places(flow):
    two_modes, quiet, skewed = flow.sample([[0.6, 1.1], [0.0, -1.5], [0.0, 1.5]], 20_000, seed=1).T
    counts = np.histogram(two_modes, np.linspace(-1.2, 1.2, 9))[0]
    left, right = np.argmax(counts[:4]), 4 + np.argmax(counts[4:])
    assert counts[left:right].min() < 0.75 * counts[[left, right]].min()  # a valley between two modes
    assert two_modes.std() > 8 * quiet.std()
    assert np.mean((skewed - skewed.mean()) ** 3) / skewed.std() ** 3 > 0.7


def test_log_density_integrates_to_one_and_beats_any_constant_noise(flow):
    grid = np.linspace(-3, 3, 301)
    density = np.exp(flow.log_prob(np.tile([[0.6, 1.1]], (301, 1)), grid, n_paths=500))
    assert np.sum(density) * (grid[1] - grid[0]) == pytest.approx(1.0, abs=0.05)
    # The best homoskedastic Gaussian knows the true mean of every target; the truth is ahead by more than half a nat.
    x, y = flow.X[:300], flow.y[:300]
    residual = y - flow.sample(x, 300, seed=2).mean(0)
    homoskedastic = -0.5 * np.log(2 * np.pi * np.e * np.mean(residual**2))
    assert flow.log_prob(x, y, n_paths=500).mean() > homoskedastic + 0.5


def test_two_outputs_share_their_path(flow):
    both = datasets.make_heteroskedastic_2d(50, n_outputs=2)
    assert both.y.shape == (50, 2) and both.sample(both.X, 7, seed=0).shape == (7, 50, 2)
    draws = both.sample([[0.6, 1.1]], 5000, seed=0)[:, 0]
    assert abs(np.corrcoef(draws.T)[0, 1]) > 0.1
    assert both.log_prob(both.X, both.y, n_paths=50).shape == (50,)
    np.testing.assert_array_equal(both.output(both.X)[:, 0], flow.output(both.X))


def test_simulation_refuses_bad_options(flow):
    with pytest.raises(OptionError, match="n=0"):
        datasets.make_heteroskedastic_2d(0)
    with pytest.raises(OptionError, match="n_outputs=3"):
        datasets.make_heteroskedastic_2d(10, n_outputs=3)
    with pytest.raises(OptionError, match="noise_std=0"):
        datasets.make_heteroskedastic_2d(10, noise_std=0)
    with pytest.raises(DataError, match=r"\(5, 3\)"):
        flow.covariance(np.zeros((5, 3)))
    with pytest.raises(DataError, match="one point in each row"):
        flow.sample([0.0, 1.0], 3, seed=0)
    with pytest.raises(DataError, match=r"y has shape \(4, 1\); expected \(4,\)"):
        flow.log_prob(np.zeros((4, 2)), np.zeros((4, 1)))
