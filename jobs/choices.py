"""Names, lists and sizes that a person gives in words, checked; an error names the flag and the nearest word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from indexmill.formats.errors import ConfigError

if TYPE_CHECKING:
    from indexmill.pipeline.kinds.common.sizes import SearchLimit

T = TypeVar("T")
Name = TypeVar("Name", bound=str)


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known word comes nearest, or list them all."""
    words = sorted(set(known))
    return meant(word, words).removeprefix("; ") or f"known: {', '.join(words)}"


def meant(word: str, known: Iterable[str]) -> str:
    """Say which known word comes near, as the end of a message that lists them; nothing where none does."""
    close = get_close_matches(word, sorted(set(known)), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def one_of(value: str, choices: Sequence[Name], flag: str) -> Name:
    """Return `value` if it is one of `choices`.

    Raises
    ------
    ConfigError
        Naming the flag, the value and the nearest choice.
    """
    for choice in choices:
        if choice == value:
            return choice
    raise ConfigError(f"{flag}: expected one of {', '.join(choices)}, got {value!r}{meant(value, choices)}")


def split_names(text: str | None) -> list[str] | None:
    """Split ``"a,b"`` into names; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def split_choices(text: str, choices: Sequence[str], flag: str) -> list[str]:
    """Split a list of words and check that each is one of `choices`; a word counts once."""
    names = [one_of(name, choices, flag) for name in split_names(text) or []]
    return _not_empty(list(dict.fromkeys(names)), flag)


def split_integers(text: str, flag: str) -> list[int]:
    """Split ``"20,50"`` into positive integers, in the order given; one may repeat, to warm up.

    Raises
    ------
    ConfigError
        If a part is no positive integer.
    """
    numbers = []
    for part in split_names(text) or []:
        if not part.isdecimal() or int(part) < 1:
            raise ConfigError(f"{flag}: expected positive integers such as 20,50,100; got {part!r}")
        numbers.append(int(part))
    return _not_empty(numbers, flag)


def size_of(value: int | str, flag: str) -> int:
    """Return a size in bytes, given as such or in words such as ``"4GiB"``.

    Raises
    ------
    ConfigError
        Naming the flag, if the words are no size.
    """
    from indexmill.pipeline.spec import parse_size

    try:
        return int(parse_size(value))
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None


def search_memory_of(text: str, flag: str) -> SearchLimit:
    """Return a limit of the memory of searches: bytes in all, or of a code as ``"64/vector"``.

    Raises
    ------
    ConfigError
        Naming the flag, if the text is neither.
    """
    from indexmill.pipeline.kinds.common.sizes import parse_search_memory

    try:
        return parse_search_memory(text)
    except ValueError as error:
        raise ConfigError(f"{flag}: {error}") from None


def split_sizes(text: str, flag: str) -> list[int]:
    """Split ``"16MiB,1GiB"`` into bytes; a size counts once.

    Raises
    ------
    ConfigError
        If a part is no size, or there is none.
    """
    return _not_empty(list(dict.fromkeys(size_of(part, flag) for part in split_names(text) or [])), flag)


def _not_empty(values: list[T], flag: str) -> list[T]:
    if not values:
        raise ConfigError(f"{flag}: the list is empty")
    return values
