"""Indexes of other programs (DiskANN, faiss, jVector, SVS), mapped and checked before memory is allocated for them.

Imports `formats.graph`, `formats.ivf`, `formats.sources` and `formats.errors`; `docs/formats/imports.md` specifies the
files.
"""
