"""Packages that only some users need, and the error that names how to install one that is missing."""

from __future__ import annotations

from importlib.util import find_spec

from indexmill.formats.errors import ConfigError

#: The extra of pyproject.toml that installs each package, by the name it is imported by.
EXTRAS = {
    "h5py": "hdf5", "matplotlib": "plots", "prometheus_client": "serve", "sklearn": "sklearn", "starlette": "serve",
    "uvicorn": "serve",
}  # fmt: skip


def require(package: str, what: str) -> None:
    """Refuse to go on without a package of `EXTRAS`, before any work is done; does not import it.

    Parameters
    ----------
    package : str
        One of `EXTRAS`.
    what : str
        What needs it, with which the message begins.

    Raises
    ------
    ConfigError
        If the package is not installed, with the command that installs it.
    """
    if find_spec(package) is None:
        raise ConfigError(
            f"{what}: needs {package}, which is not installed; run pip install 'indexmill[{EXTRAS[package]}]'"
        )
