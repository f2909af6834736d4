"""Searches and builds of one million descriptors beside DiskANN: `python -m indexmill.jobs.bench.sift1m`.

Imports `common` and `programs`.
"""
