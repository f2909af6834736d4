"""Machinery of every build: stages and their content-addressed store, locks, publishing, external sort.

Imports `pipeline.execution`.
"""
