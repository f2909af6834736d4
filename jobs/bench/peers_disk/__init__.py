"""Searches of a DiskANN index by PipeANN and Starling beside ours: `python -m indexmill.jobs.bench.peers_disk`.

Imports `common` and `programs`.
"""
