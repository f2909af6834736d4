"""Builds of ten and thirty million vectors: `python -m indexmill.jobs.bench.large`.

Imports `common` and `programs`.
"""
