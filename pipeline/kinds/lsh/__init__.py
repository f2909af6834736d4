"""The LSH kind: E2LSH tables in chained blocks.

Imports `pipeline.kinds.common`, `pipeline.mill` and the floors below.
"""
