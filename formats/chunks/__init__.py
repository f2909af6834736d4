"""Chunk files, the sorted runs of records that an external sort reads, and the append files compared with them.

Imports `formats.pagefile` and `formats.errors`.
"""
