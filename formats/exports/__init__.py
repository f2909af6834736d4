"""Files for other search engines to open, written from a finished index: one module a target (docs/guides/export.md).

Imports the folders of index files (`graph`, `ivf`, `lsh`, `index`), `formats.pagefile` and `formats.errors`.
"""
