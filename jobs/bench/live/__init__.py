"""Deletions, compactions and merges beside builds of what remains: `python -m indexmill.jobs.bench.live`.

Imports `common` and `programs`.
"""
