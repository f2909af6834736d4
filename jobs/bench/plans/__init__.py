"""What `indexmill plan` says beside what builds take: `python -m indexmill.jobs.bench.plans`.

Imports `common` and `programs`.
"""
