"""Exported indexes, searched by DiskANN: `python -m indexmill.jobs.bench.exported`.

Imports `common` and `programs`.
"""
