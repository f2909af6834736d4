"""Exact and approximate search in inverted lists, each list scanned once for all queries that probe it.

Imports `builders.nearest`.
"""
