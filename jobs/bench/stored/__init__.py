"""Openings and searches of indexes in a slow store: `python -m indexmill.jobs.bench.stored`.

Imports `common`, `large` and `programs`.
"""
