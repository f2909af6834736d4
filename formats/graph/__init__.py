"""The files of a graph index: node blocks, codes, entry vertices, navigation graph.

Imports `formats.pagefile` and `formats.errors`.
"""
