"""E2LSH: parameters, compound hashes, and the tables and probes made from them.

Imports none of the other folders of `builders`.
"""
