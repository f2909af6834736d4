"""The parameter `compute`: whether the matrix products of a build run on the processor (`cpu`) or on a GPU (`cuda`).

It decides bytes, because float32 products round differently on a GPU. So it is in keys and in the manifest, where
`auto` never stands: it is settled when a build begins.
"""

from __future__ import annotations

from indexmill.builders.gpu import open_gpu
from indexmill.formats.errors import ConfigError
from indexmill.pipeline.kinds.common.parameters import Compute, KindParameters


def settled(wanted: Compute, executor: str) -> Compute:
    """Return where a build computes: ``auto`` means on a GPU if one can be used here and tasks run here.

    Raises
    ------
    ConfigError
        If a GPU is wanted, and none can be used.
    """
    if wanted == "auto":
        wanted = "cuda" if executor == "local" and _has_gpu() else "cpu"
    open_gpu(wanted)
    return wanted


def _has_gpu() -> bool:
    try:
        open_gpu("cuda")
    except ConfigError:
        return False
    return True


def gpu_facts(p: KindParameters) -> tuple[str | None, dict[str, str]]:
    """Return the name of the GPU that a build uses, None without one, and the versions that decide what it computes."""
    gpu = open_gpu(p.computes_on)
    return (None, {}) if gpu is None else (gpu.name, gpu.software)


def compute_key(p: KindParameters) -> dict[str, str]:
    """Return what the key of a stage whose products may run on a GPU says of it: nothing on the processor.

    GPUs of two models may round differently, so a work directory that both see has a stage for each.
    """
    name, software = gpu_facts(p)
    return {} if name is None else {"compute": "cuda", "gpu": name, **software}
