"""Names of the transforms of a query in a file of faiss (docs/formats/imports.md)."""

from __future__ import annotations

#: Scales a query to a length, and moves its components to other places.
NORMALIZE, REMAP = "VNrm", "RmDT"
#: Rotate a query: one that is drawn, as of RaBitQ, and any other matrix, as of OPQ.
ROTATION, MATRIX = "rrot", "LTra"
