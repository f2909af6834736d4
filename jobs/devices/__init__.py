"""Profiles of drives: measure a drive, find its profile, and show predictions of searches on it.

Imports `search`, `console` and `choices`.
"""
