"""The stages of builds and of every other operation on whole indexes: what runs, in which order, within which memory.

Imports `builders`, `layout`, `formats` and `reader`. Floors, from the top: tune; plan, relayout; build, join,
imports, export, append; kinds, generations, grouping; mill; execution; cost, spec, bootstrap.
"""
