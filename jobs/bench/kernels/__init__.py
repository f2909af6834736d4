"""The reader's kernels beside numba's own code: `python -m indexmill.jobs.bench.kernels`.

Imports `common`.
"""
