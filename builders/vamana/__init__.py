"""The Vamana graph (DiskANN), batch-synchronous, and what is done to a finished graph: prune, connect, extend, unite.

Imports `builders.cluster`.
"""
