"""The demonstration: `python -m indexmill.jobs.demo`. Nothing imports it."""
