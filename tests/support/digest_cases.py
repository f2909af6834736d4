"""Small indexes of every kind and path, for `tests.support.digests`: what is built, laid out, exported, searched.

A group is a generator of names and of what was written under them: a directory, a file, or arrays of answers. Only the
public interface is used, `indexmill` and the command line, so that no move of a module changes this file.

Not here: exports to Lance and Lucene, which need pylance and a jar; Ray and GPUs, whose bytes are those of a local
build (their own tests say so); `tune`, whose report has seconds in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import faiss
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from numpy.typing import NDArray

import indexmill

Written: TypeAlias = Path | dict[str, NDArray[Any]]
Cases: TypeAlias = Iterator[tuple[str, Written]]

ROOT = Path(__file__).parents[2]
N, DIM = 1200, 20
GRAPH = {"R": 16, "L": 30, "pq_bytes": 8, "entries": 16, "sample_vectors": 1000}
ORDERS = (
    "star", "identity", "random", "breadth-first", "bnp", "bnf", "kmeans-pages", "gorder", "gorder-windowed", "margo",
    "graph-bisection", "restream", "polish",
)  # fmt: skip
GRAPH_TARGETS = (
    "diskann", "faiss", "faiss-nsg", "jvector", "usearch", "svs", "parquet", "pgvector", "bulk",
)  # fmt: skip
LIST_TARGETS = ("faiss-ivf", "faiss-ivf-disk", "parquet", "pgvector", "bulk")
#: Counters of a search that are times.
TIMES = ("latency_us", "io_wait_us")


@dataclass(frozen=True)
class Site:
    """Where a group writes, and how many threads it has.

    Attributes
    ----------
    folder : Path
        An empty directory of the group's own.
    """

    folder: Path
    workers: int

    def new(self, name: str) -> Path:
        """Return a path that nothing stands at."""
        return self.folder / name

    def build(self, name: str, vectors: Any, **parameters: Any) -> Path:
        """Build an index of any kind; graphs are small unless `parameters` say otherwise."""
        small = {} if "kind" in parameters else GRAPH
        indexmill.build(vectors, self.new(name), workers=self.workers, **{**small, **parameters})
        return self.new(name)

    def command(self, *arguments: object) -> None:
        """Run the command line of this checkout, whether or not it is installed."""
        entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["indexmill"]
        module, function = entry.split(":")
        code = f"from {module} import {function}; {function}()"
        paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"indexmill {' '.join(map(str, arguments))}: {done.stderr}")


def rows(
    n: int = N, dtype: str = "float32", *, dim: int = DIM, seed: int = 1, apart: float = 3.0
) -> NDArray[Any]:
    """Return clustered vectors, shape (n, dim), floats of unlike lengths; of every seed from the same clusters."""
    centres = np.random.default_rng(99).normal(size=(24, dim)) * apart
    rng = np.random.default_rng(seed)
    found = centres[rng.integers(24, size=n)] + rng.normal(size=(n, dim))
    if dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        middle = (info.max + info.min + 1) // 2
        return np.clip(np.rint(found * 12 + middle), info.min, info.max).astype(dtype)
    return (found * rng.uniform(0.5, 2, size=(n, 1))).astype(dtype)


def names(n: int, first: int = 0) -> list[str]:
    """Return user ids that are strings, some with letters of two bytes."""
    return [f"item-{'é' * (i % 3)}{i}" for i in range(first, first + n)]


def colours(n: int) -> pa.Table:
    """Return two metadata columns, one with nulls."""
    return pa.table({"score": np.arange(n) / 2, "colour": [("red", "green", None)[i % 3] for i in range(n)]})


# Graphs


def graphs(site: Site) -> Cases:
    """Both builders in one piece: metrics, types, node types, codes, passes and what else a job may say."""
    for builder in ("vamana", "partition"):
        for metric in ("l2", "cosine", "ip"):
            yield (
                f"{builder}-{metric}",
                site.build(f"{builder}-{metric}", rows(), builder=builder, metric=metric),
            )
        for dtype in ("float16", "uint8", "int8"):
            yield f"{builder}-{dtype}", site.build(f"{builder}-{dtype}", rows(dtype=dtype), builder=builder)
        name = f"{builder}-float16-ip"
        yield name, site.build(name, rows(dtype="float16"), builder=builder, metric="ip")
        for node_dtype, metric in (("float16", "l2"), ("sq16", "ip"), ("sq8", "cosine")):
            name = f"{builder}-{node_dtype}-nodes"
            yield name, site.build(name, rows(), builder=builder, node_dtype=node_dtype, metric=metric)
        name = f"{builder}-not-saturated"
        yield name, site.build(name, rows(), builder=builder, saturate=False)
        same = np.repeat(rows(N // 40, "uint8"), 40, axis=0)
        yield f"{builder}-equal-vectors", site.build(f"{builder}-equal-vectors", same, builder=builder)
    float32, uint8 = rows(), rows(dtype="uint8")
    for name, vectors, parameters in (
        ("opq", float32, {"pq_rotation": "opq"}),
        ("opq-ip-uneven", float32, {"pq_rotation": "opq", "metric": "ip", "pq_bytes": 6}),
        ("pq-of-bytes", uint8, {"pq_bytes": 3}),
        ("build-codes", float32, {"build_codes": "sq8"}),
        ("build-codes-ip", float32, {"build_codes": "sq8", "metric": "ip"}),
        ("two-passes", float32, {"passes": 2}),
        ("two-passes-of-codes", float32, {"passes": 2, "build_codes": "sq8", "saturate": False}),
        ("no-slack", float32, {"alpha": 1.0, "seed": 7}),
        ("no-navigation", float32, {"navigation": 0.0, "entries": 1}),
        ("much-navigation", float32, {"navigation": 0.1}),
        ("small-sample", float32, {"sample_vectors": 256}),
        ("nodes-of-pages", rows(400, dim=1100), {"R": 8, "L": 12}),
        ("few-vectors", rows(20), {}),
    ):
        yield name, site.build(name, vectors, **parameters)
    numbers = np.random.default_rng(3).permutation(N) * 11 + 5
    yield "numbered", site.build("numbered", float32, ids=numbers, metadata=colours(N))
    yield "named", site.build("named", uint8, ids=names(N), metadata=colours(N))
    yield "bytes", site.build("bytes", float32, ids=[name.encode() for name in names(N)])


def orders(site: Site) -> Cases:
    """Builds with every page order."""
    for order in ORDERS:
        yield order, site.build(order, rows(), order=order, node_dtype="sq8" if order == "star" else "same")


def inputs(site: Site) -> Cases:
    """Every format of input, in one file and in several."""
    float32, uint8, int8 = rows(600), rows(600, "uint8"), rows(600, "int8")
    column = pa.FixedSizeListArray.from_arrays(pa.array(float32.ravel()), DIM)
    table = colours(600).append_column("name", pa.array(names(600))).append_column("vector", column)

    def vecs(suffix: str, vectors: NDArray[Any]) -> Path:
        lengths = np.full((len(vectors), 1), vectors.shape[1], "<i4").view(np.uint8)
        body = np.ascontiguousarray(vectors).view(np.uint8).reshape(len(vectors), -1)
        site.new(f"base{suffix}").write_bytes(np.hstack([lengths, body]).tobytes())
        return site.new(f"base{suffix}")

    def bins(suffix: str, vectors: NDArray[Any]) -> Path:
        head = np.array(vectors.shape, "<u4").tobytes()
        site.new(f"base{suffix}").write_bytes(head + np.ascontiguousarray(vectors).tobytes())
        return site.new(f"base{suffix}")

    for first, last in ((0, 250), (250, 600)):
        pq.write_table(
            table.slice(first, last - first), site.new(f"part-{first}.parquet"), row_group_size=100
        )
    feather.write_feather(table, str(site.new("base.arrow")), compression="uncompressed")
    np.save(site.new("base.npy"), float32)
    np.save(site.new("wide.npy"), float32.astype(np.float64))
    with h5py.File(site.new("base.hdf5"), "w") as file:
        file["train"] = float32
    columns = {"id_column": "name", "metadata_columns": ["colour", "score"]}
    parts = [site.new("part-0.parquet"), site.new("part-250.parquet")]
    for name, source, how in (
        ("parquet", parts, columns),
        ("parquet-glob", str(site.new("part-*.parquet")), columns | {"column": "vector"}),
        ("arrow", site.new("base.arrow"), columns),
        ("table", table, columns),
        ("npy", site.new("base.npy"), {}),
        ("float64", site.new("wide.npy"), {}),
        ("hdf5", site.new("base.hdf5"), {"column": "train"}),
        ("fvecs", vecs(".fvecs", float32), {}),
        ("bvecs", vecs(".bvecs", uint8), {}),
        ("fbin", bins(".fbin", float32), {}),
        ("u8bin", bins(".u8bin", uint8), {}),
        ("i8bin", bins(".i8bin", int8), {"kind": "lsh"}),
    ):
        yield name, site.build(name, source, **how)


def shards(site: Site) -> Cases:
    """Graphs that a job cuts into shards."""
    for name, dtype, parameters in (
        ("vamana", "float32", {}),
        ("vamana-ip", "float32", {"metric": "ip"}),
        ("vamana-uint8", "uint8", {"order": "gorder"}),
        ("vamana-codes", "float32", {"build_codes": "sq8", "passes": 2}),
        ("vamana-no-overlap", "float32", {"overlap": 0.0, "saturate": False}),
        ("vamana-all-overlap", "int8", {"overlap": 1.0}),
        ("partition", "float32", {"builder": "partition"}),
        ("partition-cosine", "float16", {"builder": "partition", "metric": "cosine"}),
    ):
        index = site.build(name, rows(1800, dtype), shard_vectors=500, **parameters)
        check(b'"shards": [\n      1800\n' not in manifest(index), f"{name} was not cut")
        yield name, index


def memory(site: Site) -> Cases:
    """Graphs that memory does not hold in one piece: Vamana's in shards, the partition builder's in regions."""
    wide = np.round(rows(12_000, dim=1024), 1)
    index = site.build("shards", wide, memory="294MiB", R=8, L=10, order="identity", navigation=0.0)
    check(b'"shard_vectors": null' not in manifest(index), "memory cut no shards")
    yield "shards", index
    small = {"builder": "partition", "R": 48, "order": "identity", "navigation": 0.0}
    of_bytes = rows(20_000, "uint8", dim=64)
    whole = site.build("in-one-piece", of_bytes, saturate=False, **small)
    yield "in-one-piece", whole
    two = Site(site.folder, 2)  # one thread leaves memory for a graph in one piece
    for name, vectors, limit, saturate in (
        ("regions-uint8", of_bytes, "287MiB", False),  # the index of one piece
        ("regions-float32", rows(12_000, dim=96), "291MiB", True),
    ):
        index = two.build(name, vectors, memory=limit, saturate=saturate, **small)
        check(stages(index) != stages(whole), f"{name} was built in one piece")
        yield name, index


# Hash tables and inverted lists


def hashes(site: Site) -> Cases:
    """LSH: types, metrics, and what a job may say instead of what is solved for."""
    for dtype in ("float32", "float16", "uint8", "int8"):
        yield dtype, site.build(dtype, rows(dtype=dtype), kind="lsh")
    for name, parameters in (
        ("cosine", {"metric": "cosine"}),
        ("ip", {"metric": "ip"}),
        ("probes", {"probes": 4, "success": 0.9}),
        ("counted", {"n_tables": 6, "n_functions": 8, "candidates": 50, "hash_bits": 7}),
        ("radii", {"n_radii": 3, "first_radius": 2.0, "ratio": 1.5, "width": 3.0, "gamma": 0.8}),
        ("small-blocks", {"block_bytes": 128, "seed": 9}),
    ):
        yield name, site.build(name, rows(), kind="lsh", **parameters)
    yield "named", site.build("named", rows(), kind="lsh", ids=names(N), metadata=colours(N))


def lists(site: Site) -> Cases:
    """IVF: codecs, types, metrics, batches, copies, given centroids, and a graph over many."""
    for dtype in ("float32", "float16", "uint8", "int8"):
        for codec in ("flat", "sq8", "pq"):
            if codec == "sq8" and dtype in ("uint8", "int8"):
                continue  # bytes as they are: flat
            name = f"{codec}-{dtype}"
            yield name, site.build(name, rows(dtype=dtype), kind="ivf", lists=16, codec=codec, **codes(codec))
    for metric in ("cosine", "ip"):
        for codec in ("flat", "sq8", "pq"):
            name = f"{codec}-{metric}"
            yield (
                name,
                site.build(name, rows(), kind="ivf", lists=16, codec=codec, metric=metric, **codes(codec)),
            )
    centroids = site.new("centroids.npy")
    np.save(centroids, rows(30, seed=8))
    many = site.new("many.npy")
    np.save(many, rows(16_500, dim=4, seed=8))
    for name, vectors, parameters in (
        ("batches", rows(), {"lists": 16, "batch_vectors": 500}),
        ("batches-pq", rows(), {"lists": 16, "batch_vectors": 500, "codec": "pq", "pq_bytes": 7}),
        ("copies", rows(), {"lists": 16, "copies": 3, "closure": 0.5}),
        ("copies-kept", rows(), {"lists": 16, "copies": 2, "codec": "sq8", "keep_vectors": True}),
        ("kept", rows(), {"lists": 16, "codec": "pq", "pq_bytes": 5, "keep_vectors": True}),
        ("given-centroids", rows(), {"lists": 30, "centroids": str(centroids)}),
        ("many-lists", rows(20_000, dim=4), {"lists": 16_500, "centroids": str(many), "copies": 2}),
        ("named", rows(), {"lists": 16, "ids": names(N), "metadata": colours(N)}),
    ):
        yield name, site.build(name, vectors, kind="ivf", **parameters)


def codes(codec: str) -> dict[str, int]:
    """Return the size of codes, where there are any."""
    return {"pq_bytes": 5} if codec == "pq" else {}


# What is made of an index


def generations(site: Site) -> Cases:
    """Appended once and twice, merged, and both of indexes that were laid out or cut into shards."""
    more, further = rows(300, seed=2), rows(150, seed=3)
    for name, dtype, parameters in (
        ("l2", "float32", {}),
        ("cosine", "float32", {"metric": "cosine"}),
        ("ip", "float32", {"metric": "ip"}),
        ("partition-uint8", "uint8", {"builder": "partition"}),
        ("int8", "int8", {"order": "polish"}),
        ("opq", "float32", {"pq_rotation": "opq"}),
        ("sq8-nodes", "float32", {"node_dtype": "sq8", "navigation": 0.05}),
        ("shards", "float32", {"shard_vectors": 500}),
        ("not-saturated", "float32", {"saturate": False, "build_codes": "sq8"}),
    ):
        index = site.build(name, rows(900, dtype), **parameters)
        grown = site.new(f"{name}-grown")
        indexmill.append(index, within(rows(300, dtype, seed=2)), out=grown, workers=site.workers)
        yield f"append-{name}", grown
        if name in ("l2", "ip", "partition-uint8"):
            indexmill.append(grown, within(rows(150, dtype, seed=3)), workers=site.workers)
            yield f"append-{name}-twice", grown
        other = site.build(f"{name}-other", within(rows(500, dtype, seed=5)), **parameters)
        indexmill.merge(index, other, out=site.new(f"{name}-merged"), workers=site.workers)
        yield f"merge-{name}", site.new(f"{name}-merged")
    index = site.build("named", rows(600), ids=names(600), metadata=colours(600))
    indexmill.append(index, more, ids=names(300, 600), metadata=colours(300), workers=site.workers)
    yield "append-named", index
    other = site.build("other", further, ids=names(150, 2000), metadata=colours(150))
    indexmill.merge(other, index, out=site.new("both"), workers=site.workers)
    yield "merge-named-into-larger", site.new("both")
    indexmill.lay_out(index, "gorder", workers=site.workers)
    indexmill.append(index, further, ids=names(150, 1000), metadata=colours(150), workers=site.workers)
    yield "append-laid-out", index


def within(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return shorter vectors: nodes of codes, and inner products, take none beyond those that were built."""
    return (vectors * 0.8).astype(vectors.dtype)


def layouts(site: Site) -> Cases:
    """Every order of the portfolio, the best of them, an order from a file, and edges pruned for their pages."""
    index = site.build("index", rows(2000), order="random", R=24)
    for order in ORDERS:
        indexmill.lay_out(index, order, out=site.new(order), workers=site.workers)
        yield order, site.new(order)
    reverse = site.new("reverse.npy")
    np.save(reverse, np.arange(2000, dtype=np.uint32)[::-1])
    queries = rows(80, seed=5)
    for name, how in (
        ("file", {"order_file": reverse}),
        ("certified", {"order": "star", "certify": True}),
        ("low-effort", {"order": "gorder", "effort": "low"}),
        ("auto", {"effort": "low"}),
        ("auto-queries", {"effort": "low", "queries": queries}),
    ):
        indexmill.lay_out(index, out=site.new(name), workers=site.workers, **how)
        yield name, site.new(name)
    hasty = {"R": 8, "L": 8, "alpha": 1.0, "pq_bytes": 16}  # other edges are better for certain
    index = site.build("hasty", rows(2500, dim=48, apart=1.0), order="identity", **hasty)
    indexmill.lay_out(index, "polish", prune_edges=True, out=site.new("pruned"), workers=site.workers)
    yield "pruned-edges", site.new("pruned")
    for name, vectors, parameters in (
        ("ip", rows(), {"metric": "ip"}),
        ("uint8", rows(dtype="uint8"), {}),
        ("sq8-nodes", rows(), {"node_dtype": "sq8", "ids": names(N), "metadata": colours(N)}),
    ):
        other = site.build(f"{name}-index", vectors, order="random", **parameters)
        indexmill.lay_out(other, "polish", workers=site.workers)
        yield f"polish-{name}", other


def imports(site: Site) -> Cases:
    """Indexes that DiskANN and faiss made, and exports that come back."""
    with zipfile.ZipFile(ROOT / "tests" / "data" / "diskann.zip") as archive:
        archive.extractall(site.folder)

    def take(name: str, source: Path, **how: Any) -> tuple[str, Path]:
        indexmill.import_index(source, site.new(name), workers=site.workers, **how)
        return name, site.new(name)

    for name in ("float32", "uint8", "int8", "product"):
        yield take(f"diskann-{name}", site.new(name) / "ann")
    yield take("diskann-memory", site.new("memory") / "ann", metric="cosine", pq_bytes=4)
    uint8 = site.new("uint8") / "ann"
    yield take("diskann-laid-out", uint8, order="star", pq_bytes=4, repair=False, ids=names(500))
    faiss.omp_set_num_threads(1)
    floats = rows(700, dim=8, seed=4)
    hnsw, ip = faiss.IndexHNSWFlat(8, 6), faiss.IndexHNSWFlat(8, 6, faiss.METRIC_INNER_PRODUCT)
    nsg = faiss.IndexNSGFlat(8, 9)
    nsg.build_type = 0  # neighbours by brute force
    for index in (hnsw, ip, nsg):
        index.add(floats)
    quantizer = faiss.IndexFlatL2(8)
    flat, pq_lists = faiss.IndexIVFFlat(quantizer, 8, 12), faiss.IndexIVFPQ(quantizer, 8, 12, 4, 8)
    sq8 = faiss.IndexIVFScalarQuantizer(
        quantizer, 8, 12, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_L2, False
    )
    for index in (flat, pq_lists, sq8):
        index.train(floats)
        index.add(floats)
    made = {"hnsw": hnsw, "hnsw-ip": ip, "nsg": nsg, "ivf-flat": flat, "ivf-pq": pq_lists, "ivf-sq8": sq8}
    for name, index in made.items():
        path = site.new(f"{name}.faiss")
        faiss.write_index(index, str(path))
        yield take(f"faiss-{name}", path, program="faiss", **({} if "ivf" in name else {"pq_bytes": 4}))
    ours = site.build("ours", rows(400), ids=names(400))
    for program, file in (("svs", ""), ("jvector", "index.jvector")):
        indexmill.export(ours, program, site.new(f"{program}-files"))
        ids = {"ids": site.new(f"{program}-files") / "ids.parquet", "id_column": "id"}
        extra = {"pq_bytes": 6} if program == "svs" else {}
        yield take(program, site.new(f"{program}-files") / file, program=program, **ids, **extra)


def exports(site: Site) -> Cases:
    """Every target that needs nothing else installed, of each index that it can hold."""
    numbers = np.random.default_rng(3).permutation(600) * 11 + 5
    columns = {"ids": numbers, "metadata": colours(600)}
    named = {"ids": names(600), "metadata": colours(600)}
    of_lists = {"kind": "ivf", "lists": 12}
    for name, dtype, parameters, targets in (
        ("graph", "float32", columns, GRAPH_TARGETS),
        ("graph-cosine", "float32", {"metric": "cosine", **columns}, GRAPH_TARGETS),
        ("graph-ip", "float32", {"metric": "ip"}, GRAPH_TARGETS),
        ("graph-uint8", "uint8", {}, GRAPH_TARGETS),
        ("graph-named", "int8", named, ("jvector", "svs", "parquet", "pgvector", "bulk")),
        ("graph-float16", "float16", {}, GRAPH_TARGETS[1:]),
        ("graph-sq8", "float32", {"node_dtype": "sq8"}, GRAPH_TARGETS[1:]),
        ("graph-opq", "float32", {"pq_rotation": "opq", "R": 40}, ("diskann", "faiss", "svs")),
        ("ivf-flat", "float32", {**of_lists, **columns}, LIST_TARGETS),
        ("ivf-uint8", "uint8", of_lists, LIST_TARGETS),
        ("ivf-named", "float16", {**of_lists, **named}, ("parquet", "pgvector", "bulk")),
        ("ivf-sq8", "float32", {**of_lists, "codec": "sq8", "metric": "cosine"}, LIST_TARGETS),
        ("ivf-pq", "float32", {**of_lists, "codec": "pq", "pq_bytes": 5, "metric": "ip"}, LIST_TARGETS[:2]),
        (
            "ivf-kept",
            "float32",
            {**of_lists, "codec": "pq", "pq_bytes": 5, "keep_vectors": True},
            LIST_TARGETS,
        ),
        ("ivf-copies", "float32", {**of_lists, "copies": 3, "batch_vectors": 250}, LIST_TARGETS),
        ("lsh", "float32", {"kind": "lsh", **columns}, ("faiss-lsh",)),
        ("lsh-uint8", "uint8", {"kind": "lsh"}, ("faiss-lsh",)),
        ("lsh-ip", "float32", {"kind": "lsh", "metric": "ip"}, ("faiss-lsh",)),
    ):
        index = site.build(name, rows(600, dtype), **parameters)
        for target in targets:
            indexmill.export(index, target, site.new(f"{target}-of-{name}"))
            yield f"{target}-of-{name}", site.new(f"{target}-of-{name}")
            if "ids" in parameters:
                slots = site.new(f"{target}-of-{name}-by-slot")
                indexmill.export(index, target, slots, ids="slot")
                yield slots.name, slots


def joins(site: Site) -> Cases:
    """Joins and true neighbours: codecs, probes, a recall to learn them by, workers of a platform."""
    queries = rows(300, seed=6)
    platform = site.new("platform.toml")
    platform.write_text('[[worker]]\nname = "a"\ncount = 2\nload_mb_s = 500\ncompare_m_s = 20\n')
    for name, parameters, how in (
        ("exact", {}, {"nprobe": 16}),
        ("batches", {"batch_vectors": 400}, {"nprobe": 3}),
        ("recall", {"batch_vectors": 400}, {"recall": 0.9}),
        ("platform", {"batch_vectors": 200}, {"nprobe": 4, "platform": platform}),
        ("copies", {"copies": 3, "closure": 0.5}, {"nprobe": 3, "k": 20}),
        ("sq8", {"codec": "sq8"}, {"nprobe": 4}),
        ("pq", {"codec": "pq", "pq_bytes": 5, "metric": "cosine"}, {"nprobe": 4}),
        ("ip", {"metric": "ip", "ids": names(N)}, {"nprobe": 4}),
    ):
        index = site.build(f"{name}-index", rows(), kind="ivf", lists=16, **parameters)
        out = site.new(f"{name}.parquet")
        indexmill.join(queries, index, out, workers=site.workers, **how)
        yield name, out
        if name == "batches":
            yield "truth-of-an-index", answers(indexmill.truth(index, queries, k=20, workers=site.workers))
    base = site.new("base.npy")
    for dtype, metrics in (("float32", ("l2", "ip", "cosine")), ("uint8", ("l2",))):
        np.save(base, rows(dtype=dtype))
        for metric in metrics:
            found = indexmill.truth(base, rows(50, dtype, seed=6), k=20, metric=metric, workers=site.workers)
            yield f"truth-{dtype}-{metric}", answers(found)


def answers(found: Any) -> dict[str, NDArray[Any]]:
    """Return the arrays of true neighbours, or of a search or range search with its counters."""
    if not hasattr(found, "counters"):
        return {"ids": np.asarray(found.ids), "distances": np.asarray(found.distances)}
    arrays = {key: getattr(found, key) for key in ("vector_ids", "slots", "scores")}
    if hasattr(found, "starts"):
        arrays["starts"] = found.starts
    return arrays | {f"counters.{key}": value for key, value in found.counters.items() if key not in TIMES}


def searches(site: Site) -> Cases:
    """Answers and counters of searches, which repeat bit for bit."""
    queries = rows(60, seed=6)
    for name, parameters in (("l2", {}), ("ip", {"metric": "ip"}), ("sq8", {"node_dtype": "sq8"})):
        index = indexmill.open(site.build(name, rows(2000), navigation=0.05, **parameters))
        for policy in ("pipeline", "page", "completion", "beam"):
            for entry in ("navigation", "centroids", "medoid"):
                found = index.search(queries, 10, L=30, policy=policy, entry=entry, threads=site.workers)
                yield f"graph-{name}-{policy}-{entry}", answers(found)
        found = index.search(queries, 10, L=30, allow=np.arange(2000) % 3 == 0)
        yield f"graph-{name}-filtered", answers(found)
        radius = float(np.sort(index.search(queries, 5).scores, axis=None)[150])
        yield f"graph-{name}-range", answers(index.range_search(queries, radius))
    for name, dtype, parameters in (
        ("uint8", "uint8", {}),
        ("probes", "float32", {"probes": 3, "metric": "ip"}),
    ):
        tables = indexmill.open(site.build(f"lsh-{name}", rows(dtype=dtype), kind="lsh", **parameters))
        asked = rows(60, dtype, seed=6)
        yield f"lsh-{name}", answers(tables.search(asked, 5, threads=site.workers))
    for name, parameters in (
        ("flat", {}),
        ("sq8", {"codec": "sq8", "metric": "cosine"}),
        ("pq", {"codec": "pq", "pq_bytes": 5, "keep_vectors": True, "batch_vectors": 500}),
    ):
        inverted = indexmill.open(site.build(f"ivf-{name}", rows(), kind="ivf", lists=16, **parameters))
        yield f"ivf-{name}", answers(inverted.search(queries, 10, nprobe=4, threads=site.workers))
        yield f"ivf-{name}-pruned", answers(inverted.search(queries, 10, nprobe=8, prune=0.3))


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
    site.command("layout", "grown", "--order", "polish", "--out", "polished", *workers)
    yield "layout", site.new("polished")
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


def manifest(index: Path) -> bytes:
    """Return manifest.json of an index."""
    return (index / "manifest.json").read_bytes()


def stages(index: Path) -> set[str]:
    """Return the names of the stages that built an index."""
    return set(json.loads((index / "run.json").read_text())["seconds"])


def check(holds: bool, what: str) -> None:
    """Raise an error where a case does not go the way it is there for."""
    if not holds:
        raise RuntimeError(f"{what}; change the case, so that it is")


#: All groups, by name, in the order in which they run.
GROUPS: dict[str, Callable[[Site], Cases]] = {
    "graph": graphs,
    "order": orders,
    "input": inputs,
    "shards": shards,
    "memory": memory,
    "lsh": hashes,
    "ivf": lists,
    "generation": generations,
    "layout": layouts,
    "import": imports,
    "export": exports,
    "join": joins,
    "search": searches,
    "command": commands,
}
