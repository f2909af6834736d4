"""Graph files of other engines (faiss HNSW, hnswlib), written with their rows in another order.

Imports `formats.imports`; `docs/formats/imports.md` specifies the files.
"""
