"""pylance's description of a segment that is not committed yet, as JSON: it is kept until all segments are written."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from importlib import import_module
from typing import Any


def segment_text(segment: Any) -> str:
    """Return the description of a segment, a ``lance.dataset.Index``, as JSON."""
    fields = {**vars(segment), "fragment_ids": sorted(segment.fragment_ids)}
    if segment.created_at is not None:
        fields["created_at"] = segment.created_at.isoformat()
    if segment.files is not None:
        fields["files"] = [vars(file) for file in segment.files]
    if segment.index_details is not None:
        url, value = segment.index_details
        fields["index_details"] = [url, base64.b64encode(value).decode()]
    return json.dumps(fields)


def segment_fields(text: str) -> dict[str, Any]:
    """Return the fields of what `segment_text` wrote, with files as dictionaries."""
    fields: dict[str, Any] = json.loads(text)
    fields["fragment_ids"] = set(fields["fragment_ids"])
    if fields["created_at"] is not None:
        fields["created_at"] = datetime.fromisoformat(fields["created_at"])
    if fields["index_details"] is not None:
        url, value = fields["index_details"]
        fields["index_details"] = (url, base64.b64decode(value))
    return fields


def segment_of(text: str) -> Any:
    """Return the segment that `segment_text` wrote, a ``lance.dataset.Index``."""
    library, fields = import_module("lance.dataset"), segment_fields(text)
    if fields["files"] is not None:
        fields["files"] = [library.IndexFile(**file) for file in fields["files"]]
    return library.Index(**fields)
