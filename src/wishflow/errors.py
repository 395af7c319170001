"""Typed errors, and the warning of training. Every message says what was given, what was expected and what to do."""


class WishflowError(Exception):
    """Base class of the errors of this package.

    Every message says what was given, what was expected and what to do.

    Examples
    --------
    >>> import wishflow as wf
    >>> try:
    ...     wf.metrics.rmse([1.0, 2.0], [1.0])
    ... except wf.errors.WishflowError as error:
    ...     print(type(error).__name__)
    DataError
    """


class OptionError(WishflowError, ValueError):
    """An option has a name or a value that is not known; also a `ValueError`."""


class DataError(WishflowError, ValueError):
    """The data cannot be used as they are; also a `ValueError`."""


class DataTypeError(DataError, TypeError):
    """The data hold objects that are not numbers; also a `TypeError`, which scikit-learn expects."""


class PrecisionError(WishflowError, TypeError):
    """A float64 model was called while JAX works in 32 bits; also a `TypeError`."""


class NumericalError(WishflowError, ArithmeticError):
    """Numbers are not finite or cannot be computed; also an `ArithmeticError`. Messages name cause and remedy."""


class FactorisationError(NumericalError):
    """A kernel matrix is not positive definite, even with the largest jitter."""


class TrainingError(NumericalError):
    """The objective is not finite at the start of training, or no finite parameters are left at its end."""


class ForkError(WishflowError, RuntimeError):
    """The process was forked after wishflow had computed, so it cannot compute; also a `RuntimeError`."""


class ProcessError(WishflowError, RuntimeError):
    """A process of a job ended early; also a `RuntimeError`."""


class ModelFileError(WishflowError, ValueError):
    """A model file is damaged, of another version or not a model file; also a `ValueError`."""


class CheckpointError(WishflowError, OSError):
    """A checkpoint cannot be written, or several processes do not find the same one; also an `OSError`.

    Checkpoints cannot be written if the disk is full, or the folder is not writable.
    """


class JobError(WishflowError, RuntimeError):
    """Some jobs have failed, or cannot run where they are; also a `RuntimeError`.

    The results of the others are kept.

    Parameters
    ----------
    message : str
        What happened.
    failed : dict of int to str, optional
        The error of each job that failed, by its place in the list that was given.

    Examples
    --------
    >>> from wishflow.errors import JobError
    >>> JobError("1 of 3 jobs failed", {2: "DataError: y has no rows"}).failed
    {2: 'DataError: y has no rows'}
    """

    def __init__(self, message: str, failed: dict[int, str] | None = None) -> None:
        super().__init__(message)
        self.failed = {} if failed is None else failed

    def __reduce__(self) -> tuple:
        return type(self), (str(self), self.failed)


class DatasetError(WishflowError, FileNotFoundError):
    """A data set is neither in the data folder nor in the cache and cannot be downloaded; a `FileNotFoundError`."""


class TrainingWarning(RuntimeWarning):
    """Training has ended or gone on in a way that may make the model useless; also a `RuntimeWarning`."""


def unknown_option(name: str, value: object, known: tuple[str, ...] | list[str]) -> OptionError:
    """Make the error for an option whose value is not in a closed list of names.

    Parameters
    ----------
    name : str
        The option.
    value : object
        What was given for it.
    known : tuple or list of str
        The names that are known.

    Returns
    -------
    OptionError
        The error, to be raised by the caller.

    Examples
    --------
    >>> from wishflow.errors import unknown_option
    >>> print(unknown_option("kernel", "rfb", ["rbf", "linear"]))
    kernel='rfb' is not known; expected one of 'rbf', 'linear'.
    """
    choices = ", ".join(repr(item) for item in known)
    return OptionError(f"{name}={value!r} is not known; expected one of {choices}.")
