"""The order *agglomerative*: groups of near vertices merge until they fill pages.

`order` has the idea and the class, `near` and `pairs` the vertices near each vertex, `merging` the groups, `packing`
the pages; `tally` sums by group or page, `prefetch` fetches memory ahead.
"""
