"""IVF indexes and joins, in memory and beyond: `python -m indexmill.jobs.bench.join`.

Imports `common` and `programs`.
"""
