"""Build an index from another program's graph or inverted lists.

Imports `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
