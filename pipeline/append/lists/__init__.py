"""Append vectors to inverted lists: assigned to the lists there are, coded by their codec, in batches of their own.

Imports `pipeline.append`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
