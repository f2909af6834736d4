"""Layouts of faiss's own files, searched by faiss under a memory limit: `python -m indexmill.jobs.bench.inplace`.

Imports `common` and `programs`.
"""
