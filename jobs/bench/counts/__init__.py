"""Figures of the papers that only need counting: `python -m indexmill.jobs.bench.counts`.

Page reads, hops, recalls and shares do not depend on what else the machine does; nothing here is timed.
Imports `common`, `lsh`, `programs` and `split`.
"""
