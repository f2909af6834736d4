"""Calls to file systems at URLs that may fail for a moment or never answer: time-outs, retries, clients of fsspec.

Imports `formats.errors` alone.
"""
