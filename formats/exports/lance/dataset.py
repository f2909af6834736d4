"""A Lance dataset that exists: its fragments, the vectors of a column, and an index of them, committed at once.

An index is made of segments, which are written fragment by fragment and on any machine, merged into one, and committed
in one transaction. Until then the dataset shows nothing of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.formats.errors import InputError, first_line
from indexmill.formats.exports.lance.library import pylance, write_segment
from indexmill.formats.exports.lance.segments import segment_of, segment_text
from indexmill.formats.location import is_url, shown_path

#: Rows that are read at a time.
_BATCH_ROWS = 8192
#: How pylance names a line of its source in what it says.
_SOURCE_PLACE = re.compile(r",? ?\S+\.rs:\d+:\d+")
#: What pylance and Arrow raise.
_ERRORS = (OSError, ValueError, RuntimeError, pa.ArrowException)
#: What to do after a failure to write.
_AGAIN = "if the disk is full, free space; run again: finished segments are kept"
#: Where Lance keeps a folder for each segment, named after it.
_INDICES = "_indices"


class Fragment(NamedTuple):
    """Some rows of a dataset, in files of their own.

    Attributes
    ----------
    number : int
    first : int
        Position of its first row among all rows of the dataset.
    rows : int
        Without those that were deleted.
    state : str
        SHA-256 of what Lance says of its files: the same as long as its rows and their columns are.
    """

    number: int
    first: int
    rows: int
    state: str


class RowBatch(NamedTuple):
    """Consecutive rows of a dataset.

    Attributes
    ----------
    first : int
        Position of the first one.
    row_ids : uint64 array, shape (m,)
        Lance's.
    vectors : float32 array, shape (m, dim), perhaps read-only
    """

    first: int
    row_ids: NDArray[np.uint64]
    vectors: NDArray[np.float32]


class LanceDataset:
    """A dataset at one version.

    Parameters
    ----------
    uri : str
        A path, or a URL that pylance opens.
    version : int, optional
        By default the latest one.

    Raises
    ------
    ConfigError
        If pylance is not installed.
    InputError
        If there is no such dataset, or it cannot be read.
    """

    def __init__(self, uri: str, version: int | None = None) -> None:
        self.uri, self.name = uri, shown_path(uri)
        library = pylance()
        with self._telling(
            "cannot be opened as a Lance dataset",
            "expected the folder of one, NAME.lance, or its URL with the credentials in the environment; check "
            "--dataset",
        ):
            self._dataset = library.dataset(uri, version=version)

    @property
    def version(self) -> int:
        """The version that was opened."""
        return int(self._dataset.version)

    @property
    def latest_version(self) -> int:
        """The version of the dataset by now."""
        with self._reading():
            return int(self._dataset.latest_version)

    def vector_column(self, name: str | None, dim: int) -> str:
        """Return the column of vectors called `name`; for None, that of the only column that fits.

        Raises
        ------
        InputError
            If there is no such column, or its vectors are others than float32 of `dim` components.
        """
        return vector_column(self._dataset.schema, self.name, name, dim)

    def field_id(self, column: str) -> int:
        """Return Lance's number of a column, which it keeps when it is renamed."""
        return int(self._dataset.lance_schema.field(column).id())

    def indexes(self) -> dict[str, list[str]]:
        """Return the columns of each index, by its name."""
        with self._reading():
            return {index.name: list(index.field_names) for index in self._dataset.describe_indices()}

    def segments(self, name: str) -> set[str]:
        """Return the UUIDs of the segments of the index `name`; none if there is no such index."""
        with self._reading():
            found = [index.segments for index in self._dataset.describe_indices() if index.name == name]
            return {segment.uuid for segments in found for segment in segments}

    def fragments(self) -> list[Fragment]:
        """Return all fragments that have rows, in the order of the dataset."""
        found, first = [], 0
        with self._reading():
            for fragment in self._dataset.get_fragments():
                rows = int(fragment.count_rows())
                if rows:
                    text = json.dumps(fragment.metadata.to_json(), sort_keys=True)
                    state = hashlib.sha256(text.encode()).hexdigest()
                    found.append(Fragment(int(fragment.fragment_id), first, rows, state))
                first += rows
        return found

    def vectors(self, column: str, fragments: Sequence[int], first: int) -> Iterator[RowBatch]:
        """Yield the rows of fragments that follow each other, 8192 at a time; `first` is the position of the first row.

        Raises
        ------
        InputError
            On a row without a vector, or if pylance cannot read one.
        """
        with self._reading():
            scanner = self._dataset.scanner(
                columns=[column],
                fragments=[self._dataset.get_fragment(number) for number in fragments],
                with_row_id=True,
                scan_in_order=True,
                batch_size=_BATCH_ROWS,
            )
            batches = iter(scanner.to_batches())
        while True:
            with self._reading():
                batch = next(batches, None)
            if batch is None:
                return
            row_ids = batch.column("_rowid").to_numpy()
            vectors = float_rows(batch.column(column), row_ids, self.name, column, first)
            yield RowBatch(first, row_ids, vectors)
            first += len(vectors)

    def write_segment(
        self,
        column: str,
        fragments: Sequence[int],
        assigned: tuple[NDArray[np.uint64], NDArray[np.uint32]],
        arguments: Mapping[str, Any],
        scratch: Path,
    ) -> str:
        """Write a segment as `library.write_segment` does, and return its description as JSON.

        Raises
        ------
        InputError
            If pylance cannot write it, such as on a full disk.
        """
        with self._telling("a segment of its index cannot be written", _AGAIN):
            return segment_text(write_segment(self._dataset, column, fragments, assigned, arguments, scratch))

    def are_whole(self, segments: Iterable[str]) -> list[bool]:
        """Tell of each segment with these descriptions whether all of its files are in the dataset."""
        with self._reading():
            files = set(import_module("lance.file").LanceFileSession(self.uri).list(_INDICES))
        return [
            segment.files is not None
            and all(f"{_INDICES}/{segment.uuid}/{file.path}" in files for file in segment.files)
            for segment in map(segment_of, segments)
        ]

    def merged(self, segments: Sequence[str]) -> Any:
        """Return one segment of all those with these descriptions, at least one; nothing is committed.

        Raises
        ------
        InputError
            If pylance cannot merge their files.
        """
        described = [segment_of(text) for text in segments]
        if len(described) == 1:
            return described[0]
        with self._telling(
            "the segments of its index cannot be merged",
            f"{_AGAIN}, and written again if their files below {_INDICES} were deleted",
        ):
            return self._dataset.merge_existing_index_segments(described)

    def commit(self, name: str, column: str, segment: Any) -> None:
        """Publish a segment of all rows as the index `name`, in one transaction, in place of one of that name.

        Raises
        ------
        InputError
            If pylance cannot commit it, for instance because of what another transaction committed meanwhile.
        """
        with self._telling(
            "the index cannot be committed",
            f"expected that nothing writes to the dataset meanwhile; {_AGAIN}",
        ):
            self._dataset.commit_existing_index_segments(name, column, [segment])

    def remove_merged(self, segments: Sequence[str], kept: str) -> None:
        """Delete the files of segments, those that are there, except of the one with the UUID `kept`.

        At a URL they stay until Lance cleans up old versions.

        Raises
        ------
        OSError
        """
        if is_url(self.uri):
            return
        for segment in map(segment_of, segments):
            if segment.uuid != kept:
                with suppress(FileNotFoundError):
                    shutil.rmtree(Path(self.uri, _INDICES, segment.uuid))

    @contextmanager
    def _telling(self, problem: str, action: str) -> Iterator[None]:
        """Convert what pylance raises to an InputError that tells the problem and what to do."""
        try:
            yield
        except _ERRORS as error:
            raise InputError(f"{self.name}: {problem} ({_said(error)}); {action}") from error

    def _reading(self) -> AbstractContextManager[None]:
        return self._telling(
            "cannot be read", "expected a whole dataset that can be reached; check it, and run again"
        )


def vector_column(schema: pa.Schema, where: str, name: str | None, dim: int) -> str:
    """See `LanceDataset.vector_column`; `where` is what errors call the dataset."""
    wanted = f"{pa.list_(pa.float32(), dim)}, as the vectors of the index"
    fitting = [str(field.name) for field in schema if _is_vectors(field.type, dim)]
    if name is None:
        if len(fitting) == 1:
            return fitting[0]
        raise InputError(
            f"{where}: expected one column of type {wanted}, got {', '.join(fitting) or 'none'}; name one with "
            "--column, or name an index of vectors like those of the dataset"
        )
    if name not in schema.names:
        raise InputError(f"{where}: no column {name!r}; expected one of {', '.join(schema.names)}")
    if name not in fitting:
        raise InputError(
            f"{where}: column {name!r} is of type {schema.field(name).type}; expected {wanted}; name another column, "
            "or an index of vectors like those of this column"
        )
    return name


def _is_vectors(kind: pa.DataType, dim: int) -> bool:
    return bool(
        pa.types.is_fixed_size_list(kind) and kind.list_size == dim and pa.types.is_float32(kind.value_type)
    )


def float_rows(
    vectors: pa.Array, row_ids: NDArray[np.uint64], where: str, column: str, first: int
) -> NDArray[np.float32]:
    """Return the rows of an Arrow column of vectors, float32 (m, dim).

    Parameters
    ----------
    vectors : pyarrow.FixedSizeListArray
    row_ids : uint64 array
        Lance's.
    where, column : str
        What errors call the dataset, and the column.
    first : int
        Position of the first row in the dataset.

    Raises
    ------
    InputError
        On a row that is null, or has a null component.
    """
    dim, components = vectors.type.list_size, vectors.flatten()  # without those of null rows
    if vectors.null_count:
        row, what = _first_null(vectors), "null"
        which = f'such rows with dataset.delete("{column} IS NULL")'
    elif components.null_count:
        row, at = divmod(_first_null(components), dim)
        what = f"null in component {at}"
        which = f'the row with dataset.delete("_rowid = {row_ids[row]}")'
    else:
        rows: NDArray[np.float32] = components.to_numpy().reshape(len(vectors), dim)
        return rows
    raise InputError(
        f"{where}: row {first + row}: {what} in column {column!r}; expected a vector in every row; fill it, or delete "
        f"{which}, and run again"
    )


def _first_null(values: pa.Array) -> int:
    return int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))


def _said(error: Exception) -> str:
    """Return what pylance said, without the places in its source."""
    return _SOURCE_PLACE.sub("", first_line(error))


def snippet(uri: str, column: str, dim: int, probes: int) -> str:
    """Return Python that searches an index of a dataset.

    Parameters
    ----------
    uri, column : str
    dim : int
        Components of a vector.
    probes : int
        Lists that the search probes.
    """
    nearest = (
        f"{{'column': {column!r}, 'q': query, 'k': 10, 'nprobes': {probes}, 'maximum_nprobes': {probes}}}"
    )
    lines = [
        "import numpy as np",
        "import lance  # pylance",
        f"table = lance.dataset({uri!r})",
        f"query = np.ones({dim}, np.float32)",
        f"nearest = {nearest}",
        "print(table.to_table(nearest=nearest, columns=['_rowid', '_distance']))",
    ]
    return "\n".join(lines) + "\n"
