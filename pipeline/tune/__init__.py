"""Search for the settings of an index, by building and searching samples: here what is the same for every kind.

Imports `pipeline.plan`, `pipeline.build`, `pipeline.generations`, `pipeline.kinds` and `pipeline.mill`.
"""
