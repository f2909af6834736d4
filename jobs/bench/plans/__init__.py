"""Errors of `indexmill plan`, job by job: `python -m indexmill.jobs.bench.plans`.

Imports `common` and `programs`.
"""
