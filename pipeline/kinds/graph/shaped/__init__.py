"""A sample of queries and a column of labels, which shape a graph together with its vectors.

Imports `pipeline.kinds.graph`'s shapes and tasks, and what that folder may import.
"""
