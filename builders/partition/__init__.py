"""A graph from overlapping leaves without searches (PiPNN), in one piece or region by region.

Imports `builders.nearest`, `builders.quantize` and `builders.vamana`.
"""
