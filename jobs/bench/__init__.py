"""Benchmarks, one a folder: `python -m indexmill.jobs.bench.FOLDER --help` says how to run each.

They run from a checkout; wheels do not contain them. `records` keeps what was measured. They may import all of
indexmill, and nothing imports them.
"""
