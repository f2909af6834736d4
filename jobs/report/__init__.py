"""The report of a comparison: one HTML page that needs nothing else, JSON, and Parquet tables."""
