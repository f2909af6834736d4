"""Append vectors to a graph index as a new generation, and merge two indexes.

Imports `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
