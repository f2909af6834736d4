"""Export to faiss's IndexFlat with the vectors of an LSH index, and to arrays with its buckets.

faiss's own IndexLSH keeps signs of projections, one code for each vector, and scans all of them. It cannot represent
buckets of compound hashes over growing radii. So numpy finds candidates in the arrays, and faiss measures them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from indexmill.formats.exports import faiss_file
from indexmill.formats.exports.faiss_file import FILE_NAME, ID_BITS
from indexmill.formats.exports.rows import Advance
from indexmill.formats.exports.tables import ExportedTables
from indexmill.formats.exports.target import Target, kept
from indexmill.formats.pagefile.mapped import create_npy

NAME = "faiss-lsh"
FUNCTIONS_NAME = "functions.npz"
#: Buckets whose sizes are summed at a time.
_STEP = 1 << 18
#: Neighbours of the printed search.
_K = 10


def check(index: ExportedTables) -> None:
    """Refuse ids that are not i64."""
    index.check_ids(NAME, ID_BITS)


def write(index: ExportedTables, folder: Path, advance: Advance) -> None:
    """Write all files. Memory: 9 bytes a bucket, 32 a bucket block, the ids, and blocks of 4 MiB."""
    with open(folder / FILE_NAME, "xb") as file:
        faiss_file.begin_ids(index, file)
        faiss_file.write_flat(index, index.vectors(), file, advance)
        faiss_file.end_ids(NAME, index, file)
    _write_functions(index, folder)
    shape = index.files.shape
    starts = create_npy(folder / "starts.npy", np.uint64, (shape.n_pointers + 1,))
    with (
        open(folder / "slots.npy", "xb") as slots_file,
        open(folder / "fingerprints.npy", "xb") as prints_file,
    ):
        for one in (slots_file, prints_file):
            header: dict[str, Any] = {"descr": "<u4", "fortran_order": False, "shape": (shape.n_entries,)}
            npy.write_array_header_1_0(one, header)
        for buckets, slots, fingerprints in index.entries():
            first = int(buckets[0])
            starts[first + 1 : int(buckets[-1]) + 2] += np.bincount(buckets - first).astype(np.uint64)
            slots_file.write(slots.astype("<u4", copy=False).data)
            prints_file.write(fingerprints.astype("<u4", copy=False).data)
    before = np.uint64(0)
    for at in range(0, len(starts), _STEP):  # sizes become cumulative sums
        part = starts[at : at + _STEP]
        np.cumsum(part, out=part)
        part += before
        before = part[-1]
    starts.flush()


def _write_functions(index: ExportedTables, folder: Path) -> None:
    f, shape, defaults = index.files.functions, index.files.shape, index.files.defaults
    np.savez(
        folder / FUNCTIONS_NAME,
        projections=f.projections,
        offsets=f.offsets,
        multipliers=f.multipliers,
        radii=f.radii,
        width=np.float64(f.width),
        hash_bits=np.uint64(shape.hash_bits),
        fingerprint_bits=np.uint64(shape.fingerprint_bits),
        ratio=np.float64(defaults.ratio),
        candidates=np.int64(defaults.candidates),
    )


def snippet(index: ExportedTables, folder: Path) -> str:
    """Return Python that opens and searches the export: hashes by numpy, distances by faiss."""
    flat = "faiss.downcast_index(index.index)" if index.ids == "user" else "index"
    names = "faiss.vector_to_array(index.id_map)" if index.ids == "user" else "np.arange(index.ntotal)"
    norm = repr(float(index.files.vectors.max_norm))
    stored = {
        "l2": "query",
        "cosine": "query / np.linalg.norm(query)",
        "ip": f"np.append(query * np.float32({norm} / np.linalg.norm(query)), np.float32(0))",
    }[index.metric]
    asked = "stored[:-1]" if index.metric == "ip" else "stored"
    square = {"l2": "scores", "cosine": "2 - 2 * scores", "ip": f"2 * ({norm}**2 - scores)"}[index.metric]
    last = f"scores * (np.linalg.norm(query) / {norm})" if index.metric == "ip" else "scores"
    return f"""\
import numpy as np
import faiss  # faiss-cpu
folder = {str(folder)!r}
index = faiss.read_index(folder + "/{FILE_NAME}")
flat, names = {flat}, {names}
f = np.load(folder + "/{FUNCTIONS_NAME}")
starts, slots, fingerprints = (np.load(f"{{folder}}/{{name}}.npy", mmap_mode="r")
                               for name in ("starts", "slots", "fingerprints"))
tables, one = np.arange(len(f["projections"])), np.uint64(1)

def candidates(stored, radius):
    t = (np.float64(f["projections"] @ stored) / f["radii"][radius] + f["offsets"][radius]) / f["width"]
    v = (np.floor(t).astype("i8").view("u8") * f["multipliers"]).sum(axis=1, dtype="u8") >> np.uint64(32)
    buckets = (radius * len(tables) + tables << int(f["hash_bits"])) + (v & (one << f["hash_bits"]) - one).astype("i8")
    wanted = v >> f["hash_bits"] & (one << f["fingerprint_bits"]) - one
    spans = [slice(int(starts[b]), int(starts[b + 1])) for b in buckets]
    return np.concatenate([slots[span][fingerprints[span] == w] for span, w in zip(spans, wanted)])

def search(query, k):
    stored = {stored}
    asked, found = np.ascontiguousarray({asked}, "f4")[None], np.empty(0, "i8")
    for radius in range(len(f["radii"])):
        met = candidates(stored, radius).astype("i8")
        met = met[np.sort(np.unique(met, return_index=True)[1])]
        found = np.append(found, met[~np.isin(met, found)][: int(f["candidates"]) + k - 1])
        only = faiss.SearchParameters(sel=faiss.IDSelectorBatch(found))
        scores, rows = flat.search(asked, k, params=only)
        scores[rows < 0] = np.nan
        near = {square} <= (f["ratio"] * f["radii"][radius]) ** 2
        if near.all() or len(found) == len(names):
            break
    return names[rows[rows >= 0]], ({last})[rows >= 0]

print(*search(np.ones({index.dim}, np.float32), {_K}))
"""


TARGET = Target(
    name=NAME,
    holds=(ExportedTables,),
    engine="faiss (1.9 to 1.15) for distances, numpy for hashes",
    keeps=kept(clusters="buckets, beside it", order="yes", ids="63 bits", metadata="beside it"),
    rebuilds="nothing: it has no such hash tables, the printed code looks buckets up",
    check=check,
    write=write,
    snippet=snippet,
)
