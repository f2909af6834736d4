"""Compaction: an index without its deleted vectors, its lists repaired, laid out again and measured.

Imports `pipeline.relayout`, `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
