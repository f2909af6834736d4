"""Files of other engines (faiss HNSW and IVF, hnswlib), written with their rows or lists in another order.

Imports `formats.imports` and `formats.ivf`; `docs/formats/imports.md` specifies the files.
"""
