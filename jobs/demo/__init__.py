"""The demonstration: `python -m indexmill.jobs.demo`. Imports whatever of jobs a user would."""
