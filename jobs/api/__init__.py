"""The Python interface that `indexmill` exports, and what it shares with the commands of the same names.

Imports `kinds`, `search`, `console`, `choices` and `jobfile`, and prints nothing except progress.
"""
