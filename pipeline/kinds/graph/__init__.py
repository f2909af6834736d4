"""The graph kind: Vamana or partition builder, in one piece, in shards or in regions.

Imports `pipeline.kinds.common`, `pipeline.mill` and the floors below.
"""
