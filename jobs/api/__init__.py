"""The Python interface that `indexmill` exports, and what it shares with the commands of the same names.

Imports every other package of jobs but `cli` and `demo`.
"""
