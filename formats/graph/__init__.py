"""Files of a graph index: node blocks, codes, entry vertices, navigation graph; and the opened whole (`index`).

Imports `formats.index` and `formats.pagefile`.
"""
