"""Recall, page reads and time of searches of one index, over search settings.

Imports `search`, `options`, `console` and the package root; what differs by kind of index is in `kinds`.
"""
