"""Build an index from another program's graph or inverted lists.

Imports `pipeline.kinds` and the floors below.
"""
