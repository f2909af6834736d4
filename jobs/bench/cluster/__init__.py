"""One build on one Ray node and on two that share nothing but an S3 server: `python -m indexmill.jobs.bench.cluster`.

Imports `common` and `programs`.
"""
