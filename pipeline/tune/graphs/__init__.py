"""Search for the settings of graphs: of builds, by building and searching samples.

Imports `pipeline.tune` and what it imports.
"""
