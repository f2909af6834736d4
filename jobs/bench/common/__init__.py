"""Shared by all benchmarks: records, tables, sets of vectors, statistics and watched processes.

Imports nothing of the other folders of `bench`.
"""
