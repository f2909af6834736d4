"""Indexes of Lance datasets, beside Lance's own with as many lists: `python -m indexmill.jobs.bench.lance`.

Imports `common` and `programs`.
"""
