"""Machinery of every build: stages and their content-addressed store, storage, locks, publishing, external sort, status.

Imports `pipeline.execution`.
"""
