"""Chunk files, the sorted runs of records that a sort-merge reads, and the append files compared with them.

Imports `formats.pagefile` and `formats.errors`.
"""
