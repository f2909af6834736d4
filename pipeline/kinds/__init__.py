"""The kinds of index: what each knows before its first stage, and the stages that build it. `registry` finds a kind by its name.

Imports `pipeline.mill` and the floors below.
"""
