"""What a person or a scheduler runs: the `indexmill` command, the Python interface, reports and benchmarks.

Imports `pipeline`, `builders`, `layout`, `formats` and `reader`.
"""
