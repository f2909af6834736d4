"""Shared by every command that searches: an I/O engine by name, a filter, and answers as a table.

Imports `choices`.
"""
