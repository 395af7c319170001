"""Model files, JSON, atomic writes."""

from .arrays import flatten_arrays as flatten_arrays
from .arrays import unflatten_arrays as unflatten_arrays
from .json import plain as plain
from .json import read_json as read_json
from .json import write_json_atomic as write_json_atomic
from .model_file import FORMAT_VERSION as FORMAT_VERSION
from .model_file import read_model as read_model
from .model_file import write_model as write_model
from .writing import write_bytes_atomic as write_bytes_atomic
