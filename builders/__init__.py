"""Algorithms that turn vectors into one structure in memory; they know no path and no page.

Imports `formats`, `reader.kernels` and `reader.threads`. Kernels are compiled by numba; threads work on blocks of fixed
size, so results do not depend on the number of threads. `distances`, `gpu` and `streams` are imported by all folders.
"""
