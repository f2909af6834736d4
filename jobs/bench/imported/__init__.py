"""DiskANN's index, imported and searched: `python -m indexmill.jobs.bench.imported`.

Imports `common` and `programs`.
"""
