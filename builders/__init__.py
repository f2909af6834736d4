"""Vectors in, one in-memory structure out; knows no path and no page.

Imports `formats`, `reader.kernels` and `reader.threads`. Kernels are numba; blocks of fixed size on threads
(`reader.threads`) keep results independent of the number of threads.
"""
