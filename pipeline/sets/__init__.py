"""Sets of indexes: one input divided into parts of near-equal size, an index of each, and a router to them.

Imports `pipeline.build` and the floors below.
"""
