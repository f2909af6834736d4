"""Builds, appends, merges, layouts, exports, imports and joins by the command line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.digests.site import Site
from tests.support.digests.vectors import DIM, colours, names, rows, within
from tests.support.digests.written import Cases


def commands(site: Site) -> Cases:
    """The same paths by the command line: a job file, flags, and one command after the other."""
    table = colours(500).append_column("name", pa.array(names(500)))
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows(500).ravel()), DIM)
    pq.write_table(table.append_column("vector", column), site.new("base.parquet"))
    np.save(site.new("more.npy"), within(rows(100, seed=2)))
    np.save(site.new("queries.npy"), within(rows(40, seed=6)))
    site.new("job.toml").write_text(
        'input = "base.parquet"\nid_column = "name"\nmetadata_columns = ["score"]\nout = "index"\n'
        '[parameters]\nR = 16\nL = 30\npq_bytes = 8\norder = "bnf"\nentries = 16\n'
    )
    workers = ("--workers", site.workers)
    site.command("build", "job.toml", *workers)
    yield "build", site.new("index")
    flags = ("-R", 12, "-L", 30, "--pq-bytes", 6, "--entries", 16, "--sample-vectors", 500, *workers)
    kinds = ("--builder", "partition", "--no-saturate", "--node-dtype", "sq8", "--pq-rotation", "opq")
    site.command("build", "--input", "base.parquet", "--out", "flags", *flags, *kinds)
    yield "build-flags", site.new("flags")
    site.command("append", "flags", "more.npy", "--out", "grown", *workers)
    yield "append", site.new("grown")
    site.command("build", "--input", "queries.npy", "--out", "other", *flags, *kinds)
    site.command("merge", "grown", "other", "--out", "merged", *workers)
    yield "merge", site.new("merged")
    site.command("layout", "grown", "--order", "agglomerative", "--out", "laid-out", *workers)
    yield "layout", site.new("laid-out")
    site.command("export", "index", "--to", "diskann", "--ids", "slot", "--out", "diskann")
    yield "export", site.new("diskann")
    site.command("import", "diskann", "diskann/ann", "--dtype", "float32", "--out", "back", *workers)
    yield "import", site.new("back")
    how = ("--kind", "ivf", "--lists", 12, "--codec", "pq", "--pq-bytes", 5)
    site.command("build", "--input", "base.parquet", "--out", "lists", *how, *workers)
    yield "build-lists", site.new("lists")
    site.command("build", "--input", "base.parquet", "--out", "tables", "--kind", "lsh", *workers)
    yield "build-tables", site.new("tables")
    site.command("join", "queries.npy", "lists", "-k", 5, "--nprobe", 3, "--out", "result.parquet", *workers)
    yield "join", site.new("result.parquet")
    site.command("truth", "base.parquet", "queries.npy", "-k", 10, "--out", "truth.gt", *workers)
    yield "truth", site.new("truth.gt")
