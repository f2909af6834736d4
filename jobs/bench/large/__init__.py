"""Builds of ten and thirty million vectors: `python -m indexmill.jobs.bench.large`.

Imports `common`, `plans` and `programs`.
"""
