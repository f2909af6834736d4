"""Files that indexes of every kind have: user ids, metadata, plain vectors, the manifest and its seal (build id).

Imports `formats.pagefile`, `formats.errors` and, to know the files of a kind, `formats.kinds`.
"""
