"""The reader under hostile inputs, Miri and AddressSanitizer: `python -m indexmill.jobs.bench.fuzz`.

Imports `common`.
"""
