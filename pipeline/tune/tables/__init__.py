"""Search for the settings of hash tables: of builds, by building and searching samples, and of searches of an index.

Imports `pipeline.tune`, `pipeline.generations.tables` and what these import.
"""
