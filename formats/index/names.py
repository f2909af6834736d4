"""Names of the files that indexes of every kind have; importing this module loads nothing."""

from __future__ import annotations

MANIFEST_NAME = "manifest.json"
METADATA_NAME = "metadata.parquet"
RUN_NAME = "run.json"
