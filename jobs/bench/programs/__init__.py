"""The programs that are measured: indexmill itself, DiskANN, SVS, hnswlib and faiss, each in processes of its own.

Imports `common`.
"""
