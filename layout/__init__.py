"""A finished structure in, a permutation of its vertices and its metrics out. Knows no path."""
