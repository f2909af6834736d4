"""Hash tables on storage beside SRS, QALSH and other kinds of index: `python -m indexmill.jobs.bench.lsh`.

Imports `common` and `programs`.
"""
