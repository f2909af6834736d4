"""The `indexmill` command: exit codes and, in `commands`, one file for each command.

Imports every other package of jobs except `bench` and `demo`.
"""
