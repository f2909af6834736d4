"""Indexes that are appended to and merged."""

from __future__ import annotations

from tests.support.digests.site import Site
from tests.support.digests.vectors import colours, names, rows, within
from tests.support.digests.written import Cases

import indexmill


def generations(site: Site) -> Cases:
    """Appended once and twice, merged, and both of indexes that were laid out or cut into shards."""
    more, further = rows(300, seed=2), rows(150, seed=3)
    for name, dtype, parameters in (
        ("l2", "float32", {}),
        ("cosine", "float32", {"metric": "cosine"}),
        ("ip", "float32", {"metric": "ip"}),
        ("partition-uint8", "uint8", {"builder": "partition"}),
        ("int8", "int8", {"order": "agglomerative"}),
        ("opq", "float32", {"pq_rotation": "opq"}),
        ("sq8-nodes", "float32", {"node_dtype": "sq8", "navigation": 0.05}),
        ("kept-vectors", "float32", {"node_dtype": "sq8", "keep_vectors": True}),
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
