"""Predicted cost of one step of an update, for each kind of index: seconds and bytes of its stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from indexmill.formats.pagefile.frame import PAGE_BYTES
from indexmill.pipeline.kinds.common.memory import KERNEL_BYTES, LOADED_BYTES
from indexmill.pipeline.kinds.common.seconds import HASH_SECONDS


@dataclass(frozen=True)
class State:
    """An index between two steps.

    Attributes
    ----------
    n, deleted : int
        Vectors, and how many of them are deleted.
    bytes : int
        Of its files.
    """

    n: int
    deleted: int
    bytes: int

    @property
    def left(self) -> int:
        """Vectors that are not deleted."""
        return self.n - self.deleted

    def with_added(self, added: int) -> State:
        """Return the index with more vectors, its files as much larger."""
        return replace(self, n=self.n + added, bytes=self.bytes * (self.n + added) // self.n)

    def without_deleted(self) -> State:
        """Return the index without its deleted vectors, its files as much smaller."""
        return State(self.left, 0, self.bytes * self.left // self.n)


@dataclass(frozen=True)
class Predicted:
    """One step.

    Attributes
    ----------
    seconds : dict
        Of its stages.
    need : int
        Memory beside the page cache that the step must be given: the most that it can take, with a reserve.
    held : int
        About what its arrays take at its worst moment.
    scratch : int
        Most bytes of its files while it runs, those of its result included.
    result : int
        Bytes of its result.
    note : str, optional
        What only the run can tell.
    shared : int
        Bytes of `scratch` that lie in files of the index before, which have a second name.
    """

    seconds: dict[str, float]
    need: int
    held: int
    scratch: int
    result: int
    note: str | None = None
    shared: int = 0

    @property
    def memory(self) -> int:
        """About what the process takes at the worst moment of the step."""
        return LOADED_BYTES + KERNEL_BYTES + self.held


class Predictor(Protocol):
    """What the steps of an update take for one kind of index."""

    #: Seconds of the interpreter, imports, and kernels out of their cache.
    start_seconds: ClassVar[float]

    def rebuild(self) -> tuple[float | None, str]:
        """Return the seconds of building the result anew, None if that does not fit the memory, and more about it."""

    def merge(self, states: list[State], after: State) -> Predicted:
        """Return what joining indexes takes."""

    def append(self, before: State, added: int) -> Predicted:
        """Return what adding vectors takes."""

    def changes_without_deletions(self, before: State) -> bool:
        """Return whether a compaction may change the index if nothing is deleted."""

    def may_advise_compaction(self, before: State) -> bool:
        """Return whether the drift of the index may advise to compact it, though little is deleted."""

    def compact(self, before: State) -> Predicted:
        """Return what removing the deleted vectors takes."""


def sealed_seconds(count: int, writing: float) -> float:
    """Return the seconds of writing so many bytes of finished files, which takes `writing` a byte, and hashing them."""
    return count * (writing + HASH_SECONDS)


def scaled(need: int, fixed: int, n: int, of: int) -> int:
    """Return the memory for `n` vectors, where `of` need `need` bytes, of which `fixed` do not grow."""
    return fixed + int((need - fixed) * n / of)


def file_bytes(payload: int) -> int:
    """Return about how large a page file with so many bytes is: each page has a checksum, and a file its header."""
    return payload + payload // 1024 + 4 * PAGE_BYTES
