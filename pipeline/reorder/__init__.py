"""Other engines' graphs and inverted lists in another order: `layout` of a file.

Imports `pipeline.relayout`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
