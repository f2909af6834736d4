"""Everything that a person or a scheduler runs: the `indexmill` command, the Python interface, reports, benchmarks.

Imports `pipeline`, `builders`, `layout`, `formats` and `reader`.
"""
