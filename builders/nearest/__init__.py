"""Nearest of a few points to many vectors: matrix products, panels of bytes, and products on a GPU.

Imports none of the other folders of `builders`.
"""
