"""`load`: estimators from model files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import specs
from ..errors import ModelFileError, OptionError
from ..files.model_file import NOT_STORED, read_model
from ..numerics.devices import computing
from ..regression.classifier import FlowClassifier
from ..regression.regressors import FlowRegressor, SparseGPRegressor
from ..regression.storage import check_file, restore
from ..series.forecaster import WishartForecaster
from ..series.storage import rebuilt as rebuilt_forecaster
from ..series.wide import WideForecaster
from ..series.wide.storage import rebuilt as rebuilt_wide

CLASSES = (SparseGPRegressor, FlowRegressor, FlowClassifier, WishartForecaster, WideForecaster)
# What parts raise that are built from values which do not fit each other.
UNUSABLE = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
REGISTRY: dict[str, type] = {cls.__name__: cls for cls in CLASSES}


def load(path: str | Path, custom: dict[str, type] | None = None) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or path
        The file.
    custom : dict of str to type, optional
        Classes of your own by name, beside those of this package.

    Returns
    -------
    estimator
        The fitted estimator.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is damaged, is no model file, or holds a class or a spec that is not known.

    Examples
    --------
    >>> import numpy as np
    >>> import wishflow as wf
    >>> X = np.linspace(-2.0, 2.0, 40)[:, None]
    >>> model = wf.SparseGPRegressor(n_inducing=5, max_iter=20).fit(X, np.sin(X[:, 0]))
    >>> model.save("model")
    >>> bool((wf.load("model").predict(X) == model.predict(X)).all())
    True
    """
    header, arrays = read_model(path)
    registry = {**REGISTRY, **(custom or {})}
    name = header.get("class")
    if not isinstance(name, str) or name not in registry:
        raise ModelFileError(
            f"{path} holds a {name!r}; expected one of {sorted(registry)}. Pass the class as "
            f"custom={{{name!r}: YourClass}}."
        )
    try:
        return _rebuilt(registry[name], header, arrays)
    except ModelFileError:
        raise
    except OptionError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}") from error
    except UNUSABLE as error:
        raise ModelFileError(
            f"{path} does not describe a model that this version can build ({type(error).__name__}: {error}); "
            "save the model again with this version."
        ) from error


def _rebuilt(cls: type, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Any:
    if issubclass(cls, WishartForecaster):
        return rebuilt_forecaster(cls, header, arrays)
    if issubclass(cls, WideForecaster):
        return rebuilt_wide(cls, header, arrays)
    check_file(header, arrays)
    stored = {key: value for key, value in header["parameters"].items() if key not in NOT_STORED}
    estimator = cls(**{key: specs.from_json(value) for key, value in stored.items()})
    with computing():
        restore(estimator, header, arrays)
    return estimator
