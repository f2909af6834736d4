"""Sets of indexes beside one index of all vectors: the pages that searches read: `python -m indexmill.jobs.bench.sets`.

Imports `common`.
"""
