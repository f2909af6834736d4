"""The cost model of searches against measurement: `python -m indexmill.jobs.bench.cost`.

Imports `common`.
"""
