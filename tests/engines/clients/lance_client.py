"""Export an index to Lance, search what was written with Lance itself or LanceDB, and tell what its index holds.

Arguments: index, output, .npy file of queries, .npz file to write, JSON: k, nprobe, ids, engine ("lance", "lancedb"),
file_rows (optional: rows of a file of the dataset).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lance
import numpy as np
from lance_contents import contents

import indexmill
from indexmill.formats.exports.lance import target


def main() -> None:
    index, out, asked, answer, options = sys.argv[1:]
    how = json.loads(options)
    if "file_rows" in how:
        target.file_rows = lambda index: how["file_rows"]
    indexmill.export(index, "lance", out, ids=how["ids"])
    folder = Path(out) / "vectors.lance"
    table = lance.dataset(str(folder))
    ids, distances = [], []
    for query in np.load(asked):
        if how["engine"] == "lancedb":
            import lancedb

            opened = lancedb.connect(out).open_table("vectors")
            search = opened.search(query, vector_column_name="vector").nprobes(how["nprobe"]).limit(how["k"])
            found = search.select(["vector_id", "_distance"]).to_arrow()
        else:
            probes = {"nprobes": how["nprobe"], "maximum_nprobes": how["nprobe"]}
            nearest = {"column": "vector", "q": query, "k": how["k"], **probes}
            found = table.to_table(nearest=nearest, columns=["vector_id", "_distance"])
        ids.append(found["vector_id"].to_numpy())
        distances.append(found["_distance"].to_numpy())
    columns = table.to_table(columns=["partition", "vector_id", "id"]).to_pydict()
    columns["vector"] = np.stack(table.to_table(columns=["vector"])["vector"].to_numpy(zero_copy_only=False))
    np.savez(answer, found=np.array(ids), distances=np.array(distances), **columns, **contents(folder, table))


main()
