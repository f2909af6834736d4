"""Functions of the native reader that open no index: tell its kind, check all its bytes, measure a drive."""

from __future__ import annotations

from indexmill.reader._native import Filter, index_kind, measure_device, verify

__all__ = ["Filter", "index_kind", "measure_device", "verify"]
