"""Functions of the native reader that open no index.

They tell its kind, check all its bytes, measure a drive, and tell which instructions the kernels use.
"""

from __future__ import annotations

from indexmill.reader._native import Filter, index_kind, measure_device, unit, verify

__all__ = ["Filter", "index_kind", "measure_device", "unit", "verify"]
