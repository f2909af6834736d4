"""The files of an LSH index: hash functions, tables, and chains of 512-byte bucket blocks.

Imports `formats.index` and `formats.pagefile`.
"""
