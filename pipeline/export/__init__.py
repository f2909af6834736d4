"""Export a finished index to another search engine; the files themselves are written by `formats.exports`.

Imports `pipeline.generations` and `pipeline.mill`.
"""
