"""Vectors from wherever they are: one protocol over arrays, Arrow, Parquet, HDF5 and binary files, local or remote.

Imports `formats.errors` alone.
"""
