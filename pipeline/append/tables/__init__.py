"""Append vectors to hash tables: hashed by the functions there are, and merged into the chains of their buckets.

Imports `pipeline.append`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
