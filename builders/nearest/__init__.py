"""The nearest of a few points for many vectors: matrix products, byte panels, and the same on a GPU.

Imports none of the other folders of `builders`.
"""
