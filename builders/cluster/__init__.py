"""k-means, balanced k-means, power diagrams, and the cells and shards cut from them.

Imports `builders.nearest` and `builders.quantize`.
"""
