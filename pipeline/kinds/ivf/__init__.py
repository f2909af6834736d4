"""The IVF kind: inverted lists in batches that each fit in memory.

Imports `pipeline.kinds.common`, `pipeline.mill` and the floors below.
"""
