"""Vectors in, one in-memory structure out. Knows no path and no page."""
