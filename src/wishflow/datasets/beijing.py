"""`load_beijing`: hourly air quality and weather at three stations of Beijing, March 2013 to February 2017.

Source: UCI Beijing Multi-Site Air Quality (S. Chen, 2017, doi 10.24432/C5RK5G, CC BY 4.0); S. Zhang, B. Guo, A. Dong,
J. He, Z. Xu and S. X. Chen, Cautionary tales on air-quality improvement in Beijing, Proc. R. Soc. A 473, 2017.
"""

from __future__ import annotations

import io
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from . import originals
from .registry import UCI, Original, Table
from .storage import read_tables

ZONE = "Asia/Shanghai"
FIRST_HOUR, N_HOURS = "2013-03-01 00:00", 35_064

POLLUTANTS = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3")
WEATHER = ("TEMP", "PRES", "DEWP", "RAIN")
CALENDAR = ("year", "month", "day", "hour")
UNITS = {**dict.fromkeys(POLLUTANTS, "µg/m³"), "TEMP": "°C", "PRES": "hPa", "DEWP": "°C", "RAIN": "mm"}

# Unpacked texts, which are the published files.
CHECKSUMS = {
    "Shunyi": "8d27b386d14db242a1dd0183809841685e34e1a7a354499238532c5e12f82949",
    "Tiantan": "1865d4b500b55e5d8587c233e68126e9af6cbebc800a951022c778da1c3a0e2c",
    "Dongsi": "f56e7cf80603f10d627bcd51f7f3a36b108ed6aec898dc92376ee4d30387f9ac",
}
STATIONS = tuple(CHECKSUMS)

# Dongsi has no weather station of its own: its weather columns repeat those of Tiantan in every row.
REPEATED = tuple(f"Dongsi {column}" for column in WEATHER)


def station_table(station: str) -> Table:
    """The file of one station. All stations lie in one archive, inside the archive that UCI serves."""
    return Table(
        file=station,
        columns=("No", *CALENDAR, *POLLUTANTS, *WEATHER, "wd", "WSPM", "station"),
        sha256=CHECKSUMS[station],
        page=f"{UCI}/dataset/501/beijing+multi+site+air+quality+data",
        original=Original(
            url=f"{UCI}/static/public/501/beijing+multi+site+air+quality+data.zip",
            sha256=CHECKSUMS[station],
            convert=originals.unchanged,
            member=f"PRSA_Data_{station}_20130301-20170228.csv",
        ),
        folder="beijing",
    )


def load_beijing(interpolate: bool = False, paper: bool = False) -> pd.DataFrame:
    """Load hourly air quality and weather at three stations of Beijing, March 2013 to February 2017.

    There are 26 distinct series as float64, one column each, one row for every hour, in local time (Asia/Shanghai).

    Parameters
    ----------
    interpolate : bool, default=False
        Whether every gap is filled linearly in time, over the whole series. No series starts or ends in a gap, and no
        gap crosses the end of 2015, so that nothing of the test year reaches the training years.
    paper : bool, default=False
        Whether to give the matrix of the paper's experiment, number for number: year, month, day, hour and all ten
        columns of all three stations, filled as above, for 2014 to 2016 (26 304 rows; training and test part one after
        the other). Four of its 34 columns repeat others, so its covariance has rank 30.

    Returns
    -------
    DataFrame
        By default all 35 064 hours as measured, gaps as NaN (up to 900 hours in a row in 2014 to 2016, Dongsi NO2). The
        source, its licence, the units and the repeated columns stand in `.attrs`.

    Raises
    ------
    DatasetError
        If the data set is not found and cannot be downloaded.

    See Also
    --------
    beijing_periods : Parts of the rolling comparison.

    Notes
    -----
    Columns are named "<station> <column of the source>", such as "Shunyi PM2.5": at Shunyi and Tiantan PM2.5, PM10,
    SO2, NO2, CO, O3 (µg/m³), TEMP, DEWP (°C), PRES (hPa), RAIN (mm, zero most of the time); at Dongsi the six
    pollutants only, because its weather columns repeat those of Tiantan. Wind is left out, as in the paper. The files
    `beijing/<station>.csv.gz` are looked for as in `load_uci`.

    Examples
    --------
    >>> import wishflow as wf
    >>> wf.datasets.load_beijing().shape  # doctest: +SKIP
    (35064, 26)
    """
    tables = [station_table(station) for station in STATIONS]
    stations = [pd.read_csv(io.StringIO(text)) for text in read_tables(tables)]
    frame = _measured(stations)
    if paper:
        calendar = stations[0][list(CALENDAR)].astype(float).set_axis(frame.index)
        frame = pd.concat([calendar, fill_linearly(frame)], axis=1).loc["2014":"2016"]
    else:
        frame = frame.drop(columns=list(REPEATED))
        frame = fill_linearly(frame) if interpolate else frame
    frame.attrs = _facts(frame)
    return frame


def beijing_periods() -> dict[str, slice]:
    """Return the parts of the rolling comparison on the Beijing data.

    Returns
    -------
    dict of str to slice
        Slices for `frame.loc[...]`; both ends of each belong to it. "train" is 2014 and 2015, "test" 2016. Choices are
        made with "fit" (January 2014 to September 2015) and "validation" (October to December 2015), the two parts of
        "train", or over all seasons: with "fit_year" (all before 2015) and "validation_year" (2015).

    Examples
    --------
    >>> import wishflow as wf
    >>> list(wf.datasets.beijing_periods())
    ['train', 'test', 'fit', 'validation', 'fit_year', 'validation_year']
    """
    return {
        "train": _hours("2014-01-01", "2015-12-31"),
        "test": _hours("2016-01-01", "2016-12-31"),
        "fit": _hours("2014-01-01", "2015-09-30"),
        "validation": _hours("2015-10-01", "2015-12-31"),
        "fit_year": _hours("2013-03-01", "2014-12-31"),
        "validation_year": _hours("2015-01-01", "2015-12-31"),
    }


def fill_linearly(frame: pd.DataFrame) -> pd.DataFrame:
    """Every column with its gaps filled on a straight line between the hours around them."""
    filled = [_fill(frame[column].to_numpy()) for column in frame.columns]
    return pd.DataFrame(np.column_stack(filled), index=frame.index, columns=frame.columns)


def _fill(values: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """v_a + (v_b − v_a) (i − a)/(b − a) between neighbours a < i < b that are known.

    In this order of operations the result has the bits of the paper's matrix; `numpy.interp` differs by rounding.
    """
    filled = values.copy()
    known, gap = np.flatnonzero(~np.isnan(values)), np.flatnonzero(np.isnan(values))
    right = np.searchsorted(known, gap)
    a, b = known[right - 1], known[right]
    filled[gap] = values[a] + (values[b] - values[a]) * ((gap - a) / (b - a))
    return filled


def _measured(stations: list[pd.DataFrame]) -> pd.DataFrame:
    """The 30 columns of the three stations side by side. Every file has one row for every hour; China keeps no DST."""
    columns = list(POLLUTANTS + WEATHER)
    values = np.concatenate([station[columns].to_numpy(float) for station in stations], axis=1)
    names = [f"{station} {column}" for station in STATIONS for column in columns]
    index = pd.date_range(FIRST_HOUR, periods=N_HOURS, freq="h", tz=ZONE, name="time")
    return pd.DataFrame(values, index=index, columns=names)


def _hours(first_day: str, last_day: str) -> slice:
    return slice(pd.Timestamp(f"{first_day} 00:00", tz=ZONE), pd.Timestamp(f"{last_day} 23:00", tz=ZONE))


def _facts(frame: pd.DataFrame) -> dict[Hashable | None, Any]:
    return {
        "source": "UCI Beijing Multi-Site Air Quality, S. Chen, 2017, doi 10.24432/C5RK5G",
        "licence": "CC BY 4.0",
        "units": {name: UNITS[name.split()[-1]] for name in frame.columns if name not in CALENDAR},
        "repeated": {name: name.replace("Dongsi", "Tiantan") for name in REPEATED},
    }
