"""Speed of assignment by indexes over leaders: `python -m indexmill.jobs.bench.leaders`.

Imports `common` and `programs`.
"""
