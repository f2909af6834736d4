"""Grouping of vectors by leader, measured: the command `indexmill bench assign` (eCP study).

`jobs.bench.assign` keeps its record for one set of vectors. Imports `console` and `devices`.
"""
