"""Filtered searches of graphs: the pages that they read: `python -m indexmill.jobs.bench.filters`.

Imports `common`, `programs` and parts of `embed`.
"""
