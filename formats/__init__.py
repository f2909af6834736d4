"""All file I/O; no algorithms: vector sources, chunk files, index files, device profiles, and other programs' files.

Imports nothing of this package. `docs/formats/` specifies every file byte by byte.
"""
