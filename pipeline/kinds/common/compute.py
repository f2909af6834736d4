"""The parameter `compute`: whether the products of a build run on the processor (`cpu`) or on a GPU (`cuda`).

It decides bytes, because float32 products round differently there, and so is in keys and in the manifest, where `auto`
never stands: it is settled when a build begins.
"""

from __future__ import annotations

from indexmill.builders.gpu import open_gpu
from indexmill.formats.errors import ConfigError
from indexmill.pipeline.spec import AnyParameters, BuildSpec, IvfParameters, LshParameters, Parameters


def settled(spec: BuildSpec) -> BuildSpec:
    """Return a job that says where it computes: of ``auto``, on a GPU if one can be used here and tasks run here.

    Raises
    ------
    ConfigError
        If it asks for a GPU, and none can be used.
    """
    p = spec.parameters
    if isinstance(p, LshParameters):
        return spec
    compute = p.compute
    if compute == "auto":
        compute = "cuda" if spec.executor == "local" and _has_gpu() else "cpu"
    open_gpu(compute)
    return _computing(spec, p, compute)


def on_processor(spec: BuildSpec) -> BuildSpec:
    """Return a job that computes on the processor: the same, if it does."""
    p = spec.parameters
    return spec if isinstance(p, LshParameters) or p.compute == "cpu" else _computing(spec, p, "cpu")


def _computing(spec: BuildSpec, p: Parameters | IvfParameters, compute: str) -> BuildSpec:
    return spec.model_copy(update={"parameters": p.model_copy(update={"compute": compute})})


def _has_gpu() -> bool:
    try:
        open_gpu("cuda")
    except ConfigError:
        return False
    return True


def gpu_facts(p: AnyParameters) -> tuple[str | None, dict[str, str]]:
    """Return the name of the GPU that a build uses, None without one, and the versions that decide what it computes."""
    gpu = None if isinstance(p, LshParameters) else open_gpu(p.compute)
    return (None, {}) if gpu is None else (gpu.name, gpu.software)


def compute_key(p: AnyParameters) -> dict[str, str]:
    """Return what the key of a stage whose products may run on a GPU holds of that: nothing on the processor.

    GPUs of two models may round differently, so a work directory that both see has a stage for each.
    """
    name, software = gpu_facts(p)
    return {} if name is None else {"compute": "cuda", "gpu": name, **software}
