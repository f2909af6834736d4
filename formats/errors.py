"""All errors that indexmill raises on purpose.

A message says what failed, where (path and row, key, page or offset), what was expected, what was found, and what to do
next. The command line exits with the class's ``exit_code``.
"""


def first_line(error: BaseException) -> str:
    """Return the first line of what an error of a library says, or its type where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class IndexmillError(Exception):
    """Base of all errors that a caller can act on."""

    exit_code = 1


class ConfigError(IndexmillError):
    """A parameter, job-file key or flag is wrong; the message names it."""

    exit_code = 2


class IndexReplaced(ConfigError):
    """An index that a run reads was replaced by another generation meanwhile; running again reads what is there now."""


class InputError(IndexmillError):
    """The input vectors or queries are unusable; the message names file and row."""

    exit_code = 3


class BudgetError(IndexmillError):
    """The job does not fit the given memory or disk."""

    exit_code = 4


class StorageError(IndexmillError):
    """Shared storage refused a request, or did not answer for a long time."""


class ToolError(IndexmillError):
    """An external program failed; the message has its output."""


class OtherKind(IndexmillError):
    """The index is sound, but its kind does not support the request; the message names what does."""

    exit_code = 2


class OutputExistsError(IndexmillError):
    """The output exists already, and ``force`` was not given."""

    exit_code = 5


class RegressionError(IndexmillError):
    """An index exceeds the tolerances of a gate; the message names each figure."""

    exit_code = 7


class NothingToGain(IndexmillError):
    """The request cannot improve anything here; the message says why, and what can."""

    exit_code = 8


class FormatError(IndexmillError):
    """A file cannot be used.

    Attributes
    ----------
    path : str or None
        The file, if the error is about a single one.
    """

    exit_code = 6
    path: str | None = None


class CorruptFile(FormatError):
    """The bytes differ from those written: a checksum, a size or a field is wrong."""


class TooOld(FormatError):
    """The file has an older format version than this reader supports."""


class TooNew(FormatError):
    """The file has a newer format version than this reader supports."""


class ForeignFile(FormatError):
    """The file was not written by indexmill."""
