"""Star packing of a large graph, district by district (`layout.districts`), by tasks that nodes of a cluster share.

Imports `pipeline.kinds.graph`'s sizes and tasks, and what that folder may import.
"""
