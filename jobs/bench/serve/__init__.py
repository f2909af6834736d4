"""Builds through `serve-builds`, beside faiss's own HNSW: `python -m indexmill.jobs.bench.serve`.

Imports `common`.
"""
