"""Stages and measurements that more than one kind of index has: ingest, sample, encode, recall, certificate.

Imports `pipeline.mill` and the floors below, and no kind.
"""
