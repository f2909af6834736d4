"""Shape of an IVF build: numbers of its vectors and lists, and how they are cut into batches and tasks.

`pipeline.kinds.ivf.size` chooses the shape for a job; this file reads no job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from indexmill.formats.errors import ConfigError
from indexmill.formats.ivf.centroids import MAX_BATCHES
from indexmill.formats.ivf.rabitq import row_bytes_of
from indexmill.pipeline.kinds.common.memory import batch_bytes, task_bounds
from indexmill.pipeline.kinds.common.shape import Shape
from indexmill.pipeline.kinds.ivf.parameters import IvfParameters

#: Fewest vectors of a batch that is sized by memory.
_LEAST_BATCH = 1024
#: Most components, as they are stored, that are rotated by default: the time of learning a rotation grows with their
#: third power, and its memory with their square.
_MOST_ROTATED = 1536
#: Tasks start at multiples of so many rows from the start of a batch: blocks of products are then the same always.
ALIGN = 8192


@dataclass(frozen=True)
class IvfShape(Shape):
    """Vectors, and the parameters of lists of them.

    Attributes
    ----------
    parameters : IvfParameters
    """

    parameters: IvfParameters

    @property
    def list_row_bytes(self) -> int:
        """Bytes of a vector in its list, without its id."""
        p = self.parameters
        if p.codec == "rabitq":
            return row_bytes_of(self.dim, p.code_bits)
        return {"flat": self.row_bytes, "sq8": self.dim, "pq": min(p.pq_bytes, self.dim)}[p.codec]

    @property
    def rotation_bytes(self) -> int:
        """Bytes of the rotation before vectors are coded, if there is one."""
        return 4 * self.dim**2 * self.is_rotated

    @property
    def is_rotated(self) -> bool:
        """Whether vectors are rotated before they are coded."""
        return self.parameters.list_codec in ("rabitq", "opq")

    @property
    def batches(self) -> list[int]:
        """The first vector of each batch, and the number of vectors."""
        step = self.parameters.batch_vectors or self.n
        return [*range(0, self.n, step), self.n]

    @property
    def drawn(self) -> int:
        """Vectors of the sample."""
        return min(self.parameters.sample_vectors, self.n)

    def cuts(self, memory: int) -> list[list[int]]:
        """Return for each batch the bounds of its tasks under a budget."""
        row = 2 * self.row_bytes + self.list_row_bytes + 64
        bounds = pairwise(self.batches)
        return [
            [first + at for at in task_bounds(last - first, row, memory, ALIGN)] for first, last in bounds
        ]

    def chunk_batch_bytes(self, chunks: int, memory: int) -> int:
        """Return the size of record batches such that the chunk files of a batch can be sorted."""
        return batch_bytes(chunks, self.list_row_bytes, memory)


def with_codes(shape: IvfShape) -> IvfShape:
    """Return `shape` with the bytes and the rotation of PQ codes that its job leaves open.

    Type and components of the vectors alone decide, so that all parts of a set have the same.
    """
    p = shape.parameters
    if p.codec != "pq":
        return shape
    rotated = shape.is_embedding and shape.dim <= _MOST_ROTATED
    usual = {"pq_bytes": shape.usual_pq_bytes, "pq_rotation": "opq" if rotated else "none"}
    left_open = {name: value for name, value in usual.items() if name not in p.model_fields_set}
    return replace(shape, parameters=p.model_copy(update=left_open))


def with_batches(shape: IvfShape, memory: int) -> IvfShape:
    """Return `shape` with batches of equal size, two of which take half the memory, unless its job states the size."""
    given = shape.parameters.batch_vectors
    if given is not None:
        if -(-shape.n // given) > MAX_BATCHES:
            raise ConfigError(
                f"batch_vectors: {shape.n:,} vectors make more than {MAX_BATCHES:,} batches of {given:,}; give "
                f"at least {-(-shape.n // MAX_BATCHES):,}"
            )
        return shape
    most = max(_LEAST_BATCH, memory // 4 // ((shape.list_row_bytes + 4) * shape.parameters.copies))
    batches = -(-shape.n // most)
    resolved = shape.parameters.model_copy(update={"batch_vectors": max(64, -(-shape.n // batches))})
    return replace(shape, parameters=resolved)
