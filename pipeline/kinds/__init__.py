"""The kinds of index: what each knows before its first stage, and the stages that build it; `registry` has them all.

Imports `pipeline.mill` and the floors below.
"""
