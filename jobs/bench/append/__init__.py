"""Appends and merges beside a build of everything: `python -m indexmill.jobs.bench.append`.

Imports `common` and `programs`.
"""
