"""Commands for each kind of index, one file a kind, found by name in `registry`; and `job`, the options of all builds.

Imports `search`, `score`, `devices`, `options`, `console` and `choices`; files are light
until a function of theirs is called.
"""
