"""Export a finished index to another search engine; the files themselves are written by `formats.exports`.

Imports `pipeline.compact`, `pipeline.execution`, `pipeline.generations`, `pipeline.kinds`, `pipeline.mill` and
`pipeline.urls`.
"""
