"""Index files of other programs: their graphs, vectors and codes, as they stand on disk (docs/formats/foreign.md)."""
