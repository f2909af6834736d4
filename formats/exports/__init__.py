"""Files that other search engines open: one file a target, nothing but bytes (docs/guides/export.md)."""
