"""The Vamana graph (DiskANN), built batch by batch, and work on a finished graph: prune, connect, extend, unite.

Imports none of the other folders of `builders`.
"""
