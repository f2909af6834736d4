"""The default index of embeddings beside DiskANN and beside flags set by hand: `python -m indexmill.jobs.bench.embed`.

Imports `common` and `programs`.
"""
