"""Indexes of other programs (DiskANN, faiss, jVector, SVS), read through maps and checked before anything is allocated.

Imports `formats.pagefile` and `formats.errors`; `docs/formats/foreign.md` specifies the files.
"""
