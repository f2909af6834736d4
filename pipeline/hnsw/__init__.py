"""A hierarchical graph in faiss's format, built from raw vectors on object storage and put beside them.

Imports `pipeline.kinds`, `pipeline.rehearsal` and the floors below.
"""
