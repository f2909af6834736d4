"""Joins that are divided among a host and drives: `python -m indexmill.jobs.bench.split`.

Imports `cluster`, `common` and `programs`.
"""
