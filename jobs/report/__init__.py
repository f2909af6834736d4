"""The report of a comparison: one self-contained HTML page, JSON, and Parquet tables.

Imports `compare` and `console`.
"""
