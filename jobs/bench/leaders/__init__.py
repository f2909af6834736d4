"""How fast indexes over leaders assign vectors: `python -m indexmill.jobs.bench.leaders`.

Imports `common` and `programs`.
"""
