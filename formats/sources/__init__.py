"""Input vectors: one protocol over arrays, Arrow, Parquet, HDF5 and binary files, local or remote; ground truth.

Imports `formats.pagefile`, `formats.urls` and `formats.errors`.
"""
