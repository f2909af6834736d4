"""Recall, page reads and time of searches of one index, over search settings.

Imports `search`, `options` and `console`; what differs by kind of index is in `kinds`.
"""
