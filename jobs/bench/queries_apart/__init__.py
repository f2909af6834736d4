"""Queries unlike the vectors, with and without a sample of them: `python -m indexmill.jobs.bench.queries_apart`.

Imports `common`.
"""
