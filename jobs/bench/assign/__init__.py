"""Assignment by append files and by chunk files: `python -m indexmill.jobs.bench.assign`.

Imports `common` and sizes of leaves of `counts`.
"""
