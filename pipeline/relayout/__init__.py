"""A finished index laid out again: from its files, larger than memory or not, as its next generation.

Imports `pipeline.append`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
