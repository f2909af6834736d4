"""A new generation of a finished index: opened, changed in stages, and published in its place or beside its files.

Imports `pipeline.kinds` and the floors below.
"""
