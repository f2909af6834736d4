"""A new generation of a finished index: opened, changed in stages, published beside the old one.

Imports `pipeline.kinds` and the floors below.
"""
