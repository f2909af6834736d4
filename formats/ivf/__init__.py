"""The files of an IVF index: centroids, and batches of inverted lists.

Imports `formats.index`, `formats.graph`, `formats.lsh` and `formats.pagefile`.
"""
