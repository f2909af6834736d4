"""The frame of every index file: header, checksummed pages, footer, direct reads, atomic publishing.

Imports `formats.errors` alone.
"""
