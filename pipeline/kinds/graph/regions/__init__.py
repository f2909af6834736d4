"""A graph that the partition builder makes region by region, where it does not fit in memory at once.

Imports `pipeline.kinds.graph`'s sizes and tasks, and what that folder may import.
"""
