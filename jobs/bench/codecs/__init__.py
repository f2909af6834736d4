"""Codecs of inverted lists beside each other at equal bytes: `python -m indexmill.jobs.bench.codecs`.

Imports `common` and `programs`.
"""
