"""Random leaders (eCP) and indexes that assign a vector to its leader without comparing it with all of them.

Imports `builders.nearest`, `builders.lists` and `builders.vamana`.
"""
