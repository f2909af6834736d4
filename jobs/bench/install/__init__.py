"""The wheel, installed and tried as a new user would: `python -m indexmill.jobs.bench.install`.

Imports `common`.
"""
