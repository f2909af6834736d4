"""The papers that indexmill implements, beside our records.

`python -m indexmill.jobs.bench.papers` writes `docs/papers`.
A file `PAPER.toml` has the rows of a page: a paper's figure as it stands there, and the place of ours in the records.
Nothing is measured here. Imports `common`.
"""
