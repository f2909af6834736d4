"""Files of an IVF index: centroids, and batches of inverted lists; and the opened whole (`index`).

Imports `formats.index`, `formats.graph` and `formats.pagefile`.
"""
