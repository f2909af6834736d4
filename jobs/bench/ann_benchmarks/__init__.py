"""Our algorithm of ann-benchmarks, run by that program itself: `python -m indexmill.jobs.bench.ann_benchmarks`.

Imports `common`.
"""
