"""Orders of a finished graph's vertices on pages, and the metrics that compare orders; no paths.

Imports `formats.errors`, `reader.kernels` and `reader.threads`. `portfolio` names every order.
"""
