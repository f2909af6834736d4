"""Device profiles: the latency and throughput of a drive under random reads (docs/formats/device.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from indexmill.formats.errors import ConfigError, ForeignFile, InputError, TooNew
from indexmill.formats.pagefile.atomic import atomic_write

KIND: Literal["indexmill-device"] = "indexmill-device"
#: Version that is written, and newest version that is read; a new key with a default needs no new version.
VERSION = 1
#: Quantiles kept of each measurement: the percentiles from 0 to 100.
QUANTILES = 101
#: A list of numbers, one on each line; JSON strings contain no line ends.
_NUMBERS = re.compile(r"\[\n\s+([-\d][^\[\]{}\"]*?)\n\s+\]")
_REMEDY = "correct it, or measure the device again with: indexmill device PATH"

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
#: Bounds of a model, the same as those of the reader's simulated device.
MAX_LATENCY_US = 1e6
MIN_IOPS, MAX_IOPS = 10.0, 1e9
MIN_MB_PER_S, MAX_MB_PER_S = 0.1, 1e6
MAX_POINTS = 65536
MAX_REQUEST_US = 1000.0


class _Part(BaseModel):
    # Unknown keys come from a newer minor version or from a person's notes.
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Model(_Part):
    """Behaviour of a simulated device.

    Attributes
    ----------
    latency_us : pairs of float
        Quantile function of the latency of a single 4 KiB read: points (share of reads, latency in microseconds),
        linear between the points, from share 0 to share 1.
    iops, mb_per_s : float or None
        Limits of reads and of megabytes (10^6 bytes) a second, at any depth; None: no limit.
    request_us : float or None
        Processor time of the interface for one read, in microseconds; None: no more than the simulation needs.
    usd_per_million : float or None
        Price of a million reads, in dollars; None for a device that takes none for them.

    All values are bounded, so that a search that waits for a simulated read stops soon when interrupted.
    """

    latency_us: Annotated[
        list[Annotated[list[NotNegative], Field(min_length=2, max_length=2)]],
        Field(min_length=2, max_length=MAX_POINTS),
    ]
    iops: Annotated[float, Field(ge=MIN_IOPS, le=MAX_IOPS)] | None = None
    mb_per_s: Annotated[float, Field(ge=MIN_MB_PER_S, le=MAX_MB_PER_S)] | None = None
    request_us: Annotated[float, Field(ge=0, le=MAX_REQUEST_US)] | None = None
    usd_per_million: NotNegative | None = None

    @field_validator("latency_us")
    @classmethod
    def _is_a_distribution(cls, points: list[list[float]]) -> list[list[float]]:
        if points[0][0] != 0 or points[-1][0] != 1:
            raise ValueError("the first share must be 0.0 and the last 1.0")
        for (share, latency), (next_share, next_latency) in pairwise(points):
            if next_share <= share or next_latency < latency:
                raise ValueError(f"[{next_share}, {next_latency}] does not ascend from [{share}, {latency}]")
        if points[-1][1] > MAX_LATENCY_US:
            raise ValueError(f"expected at most {MAX_LATENCY_US:.0f} microseconds, got {points[-1][1]}")
        return points


class Latency(_Part):
    """Latencies of one measurement in microseconds."""

    mean: NotNegative
    p50: NotNegative
    p90: NotNegative
    p99: NotNegative
    p999: NotNegative
    max: NotNegative


class Reads(_Part):
    """One measurement: random reads of `bytes` bytes with `depth` reads in flight, distributed over `threads`.

    `cpu_us` is the user and system time of one read in microseconds; None in older profiles.
    """

    bytes: Annotated[int, Field(gt=0)]
    depth: Annotated[int, Field(gt=0)]
    threads: Annotated[int, Field(gt=0)]
    iops: Positive
    mb_per_s: Positive
    cpu_us: NotNegative | None = None
    latency_us: Latency
    quantiles_us: Annotated[list[NotNegative], Field(min_length=QUANTILES, max_length=QUANTILES)]


class Measured(_Part):
    """Place, time and method of the measurements of a profile, and all measurements."""

    date: str
    host: str
    path: str
    device: str
    direct: bool
    engine: str
    seconds: Positive
    reads: list[Reads]


class DeviceProfile(_Part):
    """A device profile; one written by hand has no `measured`."""

    kind: Literal["indexmill-device"] = KIND
    version: Annotated[int, Field(ge=1)] = VERSION
    name: str
    model: Model
    measured: Measured | None = None

    def iops_at(self, depth: int, block_bytes: int = 4096) -> float | None:
        """Return the reads a second with approximately `depth` reads in flight.

        This is the measurement with reads of `block_bytes` whose depth has the nearest ratio to `depth`, ties by the
        larger depth. Without such a measurement it is the limit of the model, which may be None.
        """
        reads = [] if self.measured is None else self.measured.reads
        fitting = [read for read in reads if read.bytes == block_bytes]
        if not fitting:
            mb = self.model.mb_per_s
            limits = (self.model.iops, None if mb is None else mb * 1e6 / block_bytes)
            return min((limit for limit in limits if limit is not None), default=None)
        return min(fitting, key=lambda read: (max(read.depth / depth, depth / read.depth), -read.depth)).iops


def read_profile(path: str | Path) -> DeviceProfile:
    """Read and check the device profile at `path`.

    Raises
    ------
    InputError
        If there is no such file.
    ForeignFile
        If it is not a device profile.
    TooNew
        If a later version of the format wrote it.
    ConfigError
        If a key is missing or its value is invalid; the message names the key.
    """
    try:
        value = json.loads(Path(path).read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        raise InputError(
            f"{path}: no such file; write a device profile with: indexmill device PATH"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ForeignFile(f"{path}: expected a device profile, got no JSON: {error}") from None
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind != KIND:
        raise ForeignFile(f"{path}: key 'kind': expected {KIND!r}, got {kind!r}; it is no device profile")
    version = value.get("version")
    if type(version) is int and version > VERSION:
        raise TooNew(
            f"{path}: key 'version': expected at most {VERSION}, got {version}; install a newer indexmill"
        )
    try:
        return DeviceProfile.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(
            f"{path}: {_complaint(first['loc'], first['msg'], first['input'])}; {_REMEDY}"
        ) from None


def write_profile(path: str | Path, profile: DeviceProfile) -> None:
    """Write `profile` to `path` atomically, with each list of numbers on one line.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    value = profile.model_dump()
    if profile.measured is None:
        del value["measured"]
    for key in ("request_us", "usd_per_million"):
        if value["model"][key] is None:
            del value["model"][key]
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    text = _NUMBERS.sub(lambda match: f"[{' '.join(match[1].split())}]", text)
    with atomic_write(path) as file:
        file.write(text.encode())


def _complaint(where: Sequence[int | str], message: str, got: Any) -> str:
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")
    said = message.removeprefix("Value error, ")
    return f"key '{key}': {said[:1].lower()}{said[1:]}" + (
        "" if isinstance(got, dict | list) else f", got {got!r}"
    )
