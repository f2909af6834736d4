"""Nearest of a few points to many vectors: by panels of bytes, byte codes of floats, matrix products, or a GPU.

`points` chooses between them, except for leaves, k-means and lists, whose loops have rules of their own. Imports none
of the other folders of `builders`.
"""
