"""Typed errors. Every message says what came, what was expected and what to do."""


class WishflowError(Exception):
    """Base class of the errors this package raises on its own account."""


class OptionError(WishflowError, ValueError):
    """An option has a name or a value that is not known."""


class DataError(WishflowError, ValueError):
    """The data cannot be used as they are."""


class PrecisionError(WishflowError, TypeError):
    """A float64 model was called while JAX works in 32 bits."""


class FactorisationError(WishflowError, ArithmeticError):
    """A kernel matrix is not positive definite, even with the largest jitter."""


class TrainingError(WishflowError, ArithmeticError):
    """Training produced non-finite numbers from its very first step."""


class ModelFileError(WishflowError, ValueError):
    """A model file is damaged, of another version or not a model file."""


class DatasetError(WishflowError, FileNotFoundError):
    """A data set is neither in the data folder nor in the cache and cannot be downloaded."""


def unknown_option(name: str, value: object, known: tuple[str, ...] | list[str]) -> OptionError:
    """The error for an option whose value is not in a closed list of names."""
    choices = ", ".join(repr(item) for item in known)
    return OptionError(f"{name}={value!r} is not known; expected one of {choices}.")
