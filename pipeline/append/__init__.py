"""Append vectors to a graph or to inverted lists as a new generation.

Imports `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
