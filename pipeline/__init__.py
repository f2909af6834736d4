"""The stages of builds and of every other operation on whole indexes: what runs, in which order, within which memory.

Imports `builders`, `layout`, `formats` and `reader`. `docs/ARCHITECTURE.md` has its floors, from `tune` down to `cost`.
"""
