"""Data of users as a plain header and named arrays, and back: arrays, frames, series, dictionaries and tuples of them.

What comes back is equal to what was given, with the same types of columns and stamps and the same order in memory:
sums over rows then round alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError
from .json import plain

if TYPE_CHECKING:
    pass

Arrays = dict[str, np.ndarray]


def to_arrays(value: Any) -> tuple[Any, Arrays]:
    """A header of plain JSON values, and the arrays that it names.

    Parameters
    ----------
    value : object
        None, an array or what can be made one, a Series, a DataFrame, an Index, or a dict or tuple of them.

    Returns
    -------
    header : object
        Plain JSON values.
    arrays : dict of str to ndarray
        The arrays.

    Raises
    ------
    DataError
        If the data hold objects that are neither numbers, stamps nor text.
    """
    arrays: Arrays = {}
    return _header(value, arrays), arrays


def from_arrays(header: Any, arrays: Arrays) -> Any:
    """The data that `to_arrays` took apart."""
    import pandas as pd

    kind = None if header is None else header["kind"]
    if kind is None:
        return None
    if kind in ("array", "text"):
        return _array_of(header, arrays)
    if kind == "tuple":
        return tuple(from_arrays(part, arrays) for part in header["parts"])
    if kind == "dict":
        return {_key(k): from_arrays(part, arrays) for k, part in zip(header["keys"], header["parts"], strict=True)}
    if kind == "series":
        name = _key(header["name"])
        return pd.Series(from_arrays(header["values"], arrays), _index_of(header["index"], arrays), name=name)
    if kind == "frame":
        index, columns = _index_of(header["index"], arrays), _index_of(header["columns"], arrays)
        if "values" in header:
            return pd.DataFrame(from_arrays(header["values"], arrays), index, columns)
        parts = [from_arrays(part, arrays) for part in header["parts"]]
        frame = pd.DataFrame(dict(enumerate(parts)), index)
        frame.columns = columns
        return frame
    return _index_of(header, arrays)


def _header(value: Any, arrays: Arrays) -> Any:
    import pandas as pd

    if value is None:
        return None
    if isinstance(value, tuple):
        return {"kind": "tuple", "parts": [_header(part, arrays) for part in value]}
    if isinstance(value, dict):
        keys = [_key_to_json(key) for key in value]
        return {"kind": "dict", "keys": keys, "parts": [_header(part, arrays) for part in value.values()]}
    if isinstance(value, pd.Index):
        return _index_header(value, arrays)
    if isinstance(value, pd.Series):
        index, values = _index_header(value.index, arrays), _array_header(value.to_numpy(), arrays)
        return {"kind": "series", "name": _key_to_json(value.name), "index": index, "values": values}
    if isinstance(value, pd.DataFrame):
        names = {"index": _index_header(value.index, arrays), "columns": _index_header(value.columns, arrays)}
        if len(set(value.dtypes)) == 1:
            return {"kind": "frame", **names, "values": _array_header(value.to_numpy(), arrays)}
        parts = [_array_header(value.iloc[:, j].to_numpy(), arrays) for j in range(value.shape[1])]
        return {"kind": "frame", **names, "parts": parts}
    return _array_header(np.asarray(value), arrays)


# --- arrays ------------------------------------------------------------------------------------------


def _array_header(array: np.ndarray, arrays: Arrays) -> dict[str, Any]:
    name = str(len(arrays))
    if array.dtype.kind in "mM":
        arrays[name] = array.view(np.int64)
        return {"kind": "array", "name": name, "dtype": array.dtype.str}
    if array.dtype.kind in "OU":
        try:
            values = [_value_to_json(value) for value in array.ravel()]
            return {"kind": "text", "values": values, "shape": list(array.shape), "dtype": array.dtype.kind}
        except TypeError as error:
            raise DataError(
                f"the data hold an object that is neither a number nor text ({error}); expected columns of numbers, "
                "stamps or text: convert it first."
            ) from error
    arrays[name] = array
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    return {"kind": "array", "name": name, "order": "F" if is_fortran else "C"}


def _array_of(header: dict[str, Any], arrays: Arrays) -> np.ndarray:
    if header["kind"] == "text":
        values = [_value(value) for value in header["values"]]
        if header["dtype"] == "U":
            return np.array(values, dtype=str).reshape(header["shape"])
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found.reshape(header["shape"])
    array = arrays[header["name"]]
    if "dtype" in header:
        return array.view(header["dtype"])
    return np.array(array, order=header["order"])  # a copy that can be written to


def _value_to_json(value: Any) -> Any:
    """JSON lacks numbers that are not finite, such as missing values among text."""
    found = plain(value)
    return {"number": repr(found)} if isinstance(found, float) and not math.isfinite(found) else found


def _value(value: Any) -> Any:
    return float(value["number"]) if isinstance(value, dict) else value


# --- indices -----------------------------------------------------------------------------------------


def _index_header(index: Any, arrays: Arrays) -> dict[str, Any]:
    import pandas as pd

    if isinstance(index, pd.MultiIndex):
        parts = [_index_header(index.get_level_values(i), arrays) for i in range(index.nlevels)]
        return {"kind": "levels", "parts": parts}
    said: dict[str, Any] = {"name": _key_to_json(index.name)}
    if isinstance(index, pd.RangeIndex):
        return {"kind": "range", **said, "range": [index.start, index.stop, index.step]}
    if isinstance(index, pd.PeriodIndex):
        return {"kind": "periods", **said, "freq": index.freqstr, "values": _array_header(index.asi8, arrays)}
    if isinstance(index, pd.DatetimeIndex):
        zone = None if index.tz is None else str(index.tz)
        said |= {"zone": zone, "unit": index.unit, "freq": _freq_name(index.freq)}
        return {"kind": "stamps", **said, "values": _array_header(index.asi8, arrays)}
    return {"kind": "labels", **said, "values": _array_header(index.to_numpy(), arrays)}


def _freq_name(freq: Any) -> str | None:
    """The name of a frequency that stands for all of it; holidays are no part of names."""
    import pandas as pd

    return freq.freqstr if freq is not None and pd.tseries.frequencies.to_offset(freq.freqstr) == freq else None


def _index_of(header: dict[str, Any], arrays: Arrays) -> Any:
    import pandas as pd

    kind = header["kind"]
    if kind == "levels":
        parts = [_index_of(part, arrays) for part in header["parts"]]
        return pd.MultiIndex.from_arrays(parts, names=[part.name for part in parts])
    name = _key(header["name"])
    if kind == "range":
        start, stop, step = header["range"]
        return pd.RangeIndex(start, stop, step, name=name)
    values = _array_of(header["values"], arrays)
    if kind == "periods":
        return pd.PeriodIndex.from_ordinals(values, freq=header["freq"], name=name)  # type: ignore[attr-defined]
    if kind == "labels":
        return pd.Index(values, name=name)
    index = pd.DatetimeIndex(values.astype(f"datetime64[{header['unit']}]"), name=name)
    if header["zone"] is not None:
        index = index.tz_localize("UTC").tz_convert(header["zone"])
    return index if header["freq"] is None else pd.DatetimeIndex(index, freq=header["freq"])


def _key_to_json(key: Any) -> Any:
    """Names of columns and series: numbers, text, and tuples of them."""
    import pandas as pd

    if isinstance(key, pd.Timestamp):
        return {"stamp": key.isoformat()}
    return {"tuple": [_key_to_json(part) for part in key]} if isinstance(key, tuple) else plain(key)


def _key(key: Any) -> Any:
    import pandas as pd

    if not isinstance(key, dict):
        return key
    return pd.Timestamp(key["stamp"]) if "stamp" in key else tuple(_key(part) for part in key["tuple"])
