"""Random leaders (eCP) and the indexes over them that assign a vector without comparing it with every leader.

Imports `builders.nearest` and `builders.vamana`.
"""
