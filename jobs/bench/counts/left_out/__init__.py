"""Formats that no index has: what a search would read with them, counted by a simulation."""
