"""Files of an IVF index: centroids, and batches of inverted lists; and the opened whole (`index`).

Imports `formats.index`, `formats.graph`, `formats.pagefile` and `formats.errors`.
"""
