"""Chunk files: sorted runs of records on their way through a sort-merge, and the append files they are compared with.

Imports `formats.pagefile` and `formats.errors`.
"""
