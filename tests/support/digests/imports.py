"""Indexes of other programs, and exports, that are imported."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import faiss
from tests.support.digests.site import ROOT, Site
from tests.support.digests.vectors import names, rows
from tests.support.digests.written import Cases

import indexmill


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
