"""Machinery of every build: stages and their content-addressed store, storage, locks, publishing, external sort.

Imports `pipeline.execution`.
"""
