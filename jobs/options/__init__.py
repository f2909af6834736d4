"""Options of commands, declared as models from which typer's parameters are made.

Imports no other folder of `jobs`.
"""
