"""Vectors assigned to leaders by two policies, ChunkFiles and TempFiles (eCP study, section 4).

Imports `pipeline.mill` and the floors below.
"""
