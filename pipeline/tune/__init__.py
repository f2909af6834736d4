"""Search for the settings of a build by building and searching samples.

Imports `pipeline.plan`, `pipeline.build`, `pipeline.generations`, `pipeline.kinds` and `pipeline.mill`.
"""
