"""Which machine, which software and which commit a measurement was made with, and where the repository is."""

from indexmill.jobs.devices.machine import (
    REPOSITORY,
    commit,
    load_average,
    machine_facts,
    software_versions,
)

__all__ = ["REPOSITORY", "commit", "load_average", "machine_facts", "software_versions"]
