"""Options of commands, declared as models from which typer's parameters are made.

Imports `choices` and `jobfile`; and `pipeline.spec` when the options of a job are asked for.
"""
