"""Merge of any number of indexes of one kind into one, without their deleted vectors.

Imports `pipeline.compact`, `pipeline.append` and the floors below.
"""
