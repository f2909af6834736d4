"""Answer many queries at once against a whole index, batch by batch (Batch Similarity Search), and exact ground truth.

Imports `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
