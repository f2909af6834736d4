"""Every error indexmill raises on purpose.

Each one says what failed, where (path and row, key, page or offset), what was expected, what was found
and what to do next. The command line maps each class to the exit code in ``exit_code``.
"""


class IndexmillError(Exception):
    """Base of all errors that a caller can act on."""

    exit_code = 1


class ConfigError(IndexmillError):
    """A parameter, job-file key or flag is wrong; the message names it."""

    exit_code = 2


class InputError(IndexmillError):
    """The input vectors or queries are unusable; the message names file and row."""

    exit_code = 3


class BudgetError(IndexmillError):
    """The job does not fit the stated memory or disk."""

    exit_code = 4


class StorageError(IndexmillError):
    """Shared storage refused, or did not answer for long."""


class ToolError(IndexmillError):
    """A program that part of the work was given to failed; the message has what it said."""


class OtherKind(IndexmillError):
    """An index that is sound, but of a kind that cannot do what was asked; the message names one that can."""

    exit_code = 2


class OutputExistsError(IndexmillError):
    """The output exists already and ``force`` was not given."""

    exit_code = 5


class RegressionError(IndexmillError):
    """An index is worse than the tolerances of a gate allow; the message names each figure."""

    exit_code = 7


class NothingToGain(IndexmillError):
    """What was asked for cannot help here; the message says why, and what can."""

    exit_code = 8


class FormatError(IndexmillError):
    """A file cannot be used as it is.

    Attributes
    ----------
    path : str or None
        The file, where the error is about one.
    """

    exit_code = 6
    path: str | None = None


class CorruptFile(FormatError):
    """Bytes differ from what was written: a checksum, a size or a field is wrong."""


class TooOld(FormatError):
    """Written in a format version older than this reader knows."""


class TooNew(FormatError):
    """Written in a format version newer than this reader knows."""


class ForeignFile(FormatError):
    """Not a file of ours."""
