"""Search for the settings of a build by building and searching samples.

Imports every other folder of `pipeline`.
"""
