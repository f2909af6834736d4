"""The cost model of searches: page reads, time on a device, and recommended settings.

Imports no other folder of `pipeline`.
"""
