"""Compiles the kernels of a job before it begins, by a tiny job of its kind in a process of its own.

Imports `pipeline.spec`, `pipeline.kinds` and the floors below.
"""
