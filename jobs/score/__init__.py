"""Recall, page reads and time of searches of one index over search settings, for each kind of index."""
