"""Checks of the words that flags take; `reader.choices` lists them."""

from __future__ import annotations

from pathlib import Path

from indexmill.reader.choices import ENGINES, MEMORY, SIMULATED


def check_engine(name: str, flag: str = "--engine", with_memory: bool = False) -> str:
    """Return the engine's name if there is such an engine; the reader itself checks the profile it may name.

    Parameters
    ----------
    with_memory : bool
        Whether ``memory`` is one, which indexes of kinds ``lsh`` and ``ivf`` know.

    Raises
    ------
    ConfigError
        Naming the flag and what it takes.
    """
    engines = (*ENGINES, MEMORY) if with_memory else ENGINES
    if name in engines or (name.startswith(SIMULATED) and name != SIMULATED):
        return name
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.jobfile import nearest

    raise ConfigError(
        f"{flag}: expected one of {', '.join(engines)} or {SIMULATED}PROFILE.json, got {name!r};"
        f" {nearest(name, engines)}"
    )


def simulated_profile(engine: str) -> Path | None:
    """Path of the device profile that a simulated engine's name holds; None for the others."""
    return Path(engine.removeprefix(SIMULATED)) if engine.startswith(SIMULATED) else None
