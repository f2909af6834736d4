"""Page layouts: what orders cost and the pages that they read: `python -m indexmill.jobs.bench.layouts`.

Imports `common`, `programs` and parts of `sift1m` and `embed`.
"""
