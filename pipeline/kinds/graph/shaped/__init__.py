"""What shapes a graph beside its vectors: a sample of queries, and a column of labels.

Imports `pipeline.kinds.graph`'s shapes and tasks, and what that folder may import.
"""
