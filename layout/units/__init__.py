"""The pages of an order in units of 64 KiB and 1 MiB: the graph of the pages, and the order made of it.

Imports `order` and `reverse`.
"""
