"""Builds within a memory budget, in shards and on executors: `python -m indexmill.jobs.bench.mill`.

Imports `common` and `programs`.
"""
