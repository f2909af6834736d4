"""Checks of the words that flags take; `reader.choices` lists them."""

from __future__ import annotations

from pathlib import Path

from indexmill.reader.choices import ENGINES, MEMORY, RANGES, SIMULATED


def check_engine(
    name: str, flag: str = "--engine", with_memory: bool = False, with_ranges: bool = False
) -> str:
    """Return the name under which the reader knows the engine; it checks the profile that it may name by itself.

    A simulated engine may name a profile of `pipeline.devices`, whose path the reader is given.

    Parameters
    ----------
    with_memory : bool
        Whether ``memory`` is one, which indexes of kinds ``lsh`` and ``ivf`` know.
    with_ranges : bool
        Whether ``ranges`` is one, which reads indexes at URLs.

    Raises
    ------
    ConfigError
        If there is no such engine; the message names the flag and the engines.
    """
    engines = (*ENGINES, *([MEMORY] if with_memory else []), *([RANGES] if with_ranges else []))
    if name in engines:
        return name
    if (profile := simulated_profile(name)) is not None and name != SIMULATED:
        return f"{SIMULATED}{profile}"
    from indexmill.formats.errors import ConfigError
    from indexmill.jobs.choices import meant

    raise ConfigError(
        f"{flag}: expected one of {', '.join(engines)} or {SIMULATED}PROFILE.json, got {name!r}{meant(name, engines)}"
    )


def simulated_profile(engine: str) -> Path | None:
    """Path of the device profile that a simulated engine's name holds; None for the others."""
    if not engine.startswith(SIMULATED):
        return None
    from indexmill.pipeline.devices import profile_path

    return profile_path(engine.removeprefix(SIMULATED))
