"""A finished index laid out again: from its files, out of core, as its next generation.

Imports `pipeline.append`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
