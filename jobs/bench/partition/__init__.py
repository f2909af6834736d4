"""Builders beside each other and beside other programs: `python -m indexmill.jobs.bench.partition`.

Imports `common` and `programs`.
"""
