"""The three forms of a vector while an index is extended: as stored on a page, as compared, as the user gives it.

Unless exact vectors are kept apart, an index has no vector but the one on the page. For sq8 and sq16 that is a code,
so vectors that were there before take part as what their codes mean, and a float16 node as its rounded value; new
vectors take part as they came, and are rounded when they are written. The bytes of a stored vector never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.builders.distances import comparable
from indexmill.builders.quantize.scalar import Scale
from indexmill.formats.graph.file import GraphFile
from indexmill.formats.graph.nodes import NodeFormat

#: A component may lie beyond the range of an sq8 or sq16 scale by this share of the range; it is stored as the end.
#: New extremes of the same data lie just outside the range that the build saw, and refusing them would refuse all.
SCALE_SLACK = 0.1
_FLOAT16_MAX = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True)
class NodeSpace:
    """Conversions for the nodes of one index.

    Attributes
    ----------
    node : NodeFormat
    scale : Scale or None
        Given exactly for sq8 and sq16.
    """

    node: NodeFormat
    scale: Scale | None

    @staticmethod
    def of(graph: GraphFile) -> NodeSpace:
        """Return the space of an opened graph.imx."""
        arrays = graph.scale()
        node = graph.node_format
        return NodeSpace(node, None if arrays is None else Scale(*arrays, int(node.dtype[2:])))

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of compared rows: uint8 for uint8 and int8 nodes, else float32."""
        return np.dtype(np.uint8 if self.node.dtype in ("uint8", "int8") else np.float32)

    def compared(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return stored vectors (m, dim) as rows that the graph kernels compare."""
        if self.scale is not None:
            return self.scale.minimum + self.scale.step * stored.astype(np.float32)
        return comparable(stored)

    def as_given(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return compared rows (m, dim) in the user's terms: int8 instead of shifted uint8."""
        return (rows ^ np.uint8(0x80)).view(np.int8) if self.node.dtype == "int8" else rows

    def stored(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return compared rows (m, dim) as the components of a node."""
        if self.scale is not None:
            return self.scale.encode(rows)
        return self.as_given(rows).astype(self.node.element_dtype, copy=False)

    def outside(self, rows: NDArray[Any], slack: float = 0.0) -> NDArray[np.bool_]:
        """Return which components (m, dim) of compared rows a node cannot hold, with `slack` of the range allowed."""
        low: NDArray[Any] | np.float32
        high: NDArray[Any] | np.float32
        if self.scale is not None:
            reach = self.scale.step * np.float32(2**self.scale.bits - 1)
            # Rounding of the step can leave the build's own maximum a little beyond the last code.
            low = self.scale.minimum - (slack + 1e-6) * reach
            high = self.scale.minimum + (1 + slack + 1e-6) * reach
        elif self.node.dtype == "float16":
            low, high = -_FLOAT16_MAX, _FLOAT16_MAX
        else:
            return np.zeros(rows.shape, np.bool_)
        beyond: NDArray[np.bool_] = (rows < low) | (rows > high)
        return beyond

    def range_of(self, component: int) -> str:
        """Describe the values that a node holds in `component`."""
        if self.scale is None:
            return "-65504 to 65504 (float16)"
        low, step = float(self.scale.minimum[component]), float(self.scale.step[component])
        high = low + step * (2**self.scale.bits - 1)
        return f"{low:g} to {high:g} ({self.node.dtype}), give or take {SCALE_SLACK:.0%} of that"
