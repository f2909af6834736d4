"""Files of an LSH index: hash functions, tables, chains of bucket blocks; and the opened whole (`index`).

Imports `formats.index`, `formats.pagefile` and `formats.errors`.
"""
