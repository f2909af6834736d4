"""Names of the files that indexes of every kind and exports have; importing this module loads nothing."""

from __future__ import annotations

#: Description of an export, written last: a directory without it is not an export.
EXPORT_NAME = "export.json"
MANIFEST_NAME = "manifest.json"
METADATA_NAME = "metadata.parquet"
RUN_NAME = "run.json"
