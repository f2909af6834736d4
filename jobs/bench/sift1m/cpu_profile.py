"""CPU time of a search by its purpose, from the kernel's profiler (``perf``) and the source lines of addresses."""

from __future__ import annotations

import re
import shutil
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indexmill.jobs.bench.common.curves import Half
from indexmill.jobs.bench.common.process import output_of
from indexmill.jobs.bench.programs import native
from indexmill.jobs.bench.programs.ours import Ours, Setting
from indexmill.jobs.bench.programs.workspace import Workspace

SECONDS = 4
#: Samples a second and core: odd, so that it meets no timer of the system.
_RATE = 1999
KERNEL = "kernel and I/O"
OTHER = "other"
#: The first row counts whose pattern fits a frame, from the innermost frame outwards: "file function".
GROUPS = (
    ("page checks (CRC)", re.compile(r"/checksum\.rs |check_block|crc")),
    ("copying pages", re.compile(r"page_heap\.rs .*(keep|append)|mem(cpy|move)")),
    ("navigation graph", re.compile(r"/navigation\.rs ")),
    (
        "code distances",
        re.compile(
            r"/codes\.rs |/code_table\.rs |/floors/|/lookup\.rs |/gather\.rs |gather|fill_table|squares|prefetch"
        ),
    ),
    ("exact distances", re.compile(r"/exact\.rs |/distance/|measure|results\.rs ")),
    ("candidate list", re.compile(r"/candidates\.rs ")),
    ("visited vertices and page heap", re.compile(r"/stamped\.rs |/page_heap\.rs ")),
    ("choosing and expanding", re.compile(r"/search/|/graph/")),
    ("submitting and reaping reads", re.compile(r"/engine/|io_uring")),
)
_SAMPLE = re.compile(r"^\s*([0-9a-f]+) (.*) \((.+)\)$")


def why_not() -> str | None:
    """Return why there can be no profile here; None if there can."""
    missing = [name for name in ("perf", "addr2line", "cargo") if shutil.which(name) is None]
    return f"{', '.join(missing)}: not installed" if missing else None


def measure(space: Workspace, index: str, setting: Setting, size: int) -> dict[str, Any]:
    """Profile the same search again and again for some seconds; shares of its CPU time by what it is spent on."""
    half: Half = "report"
    library = native.python_module().resolve()
    data = space.out / "perf.data"
    with Ours(space, library) as searcher:
        row = searcher.ask(index, setting, size, half)
        times = max(1, round((SECONDS + 1) * row["qps"] / row["n_queries"]))
        pid = searcher.session.child.pid
        ranges = load_ranges(pid, library)
        searcher.session.send(**searcher.question(index, setting, size, half, times=times))
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", _RATE, "-o", data, "-p", pid]
        output_of([*record, "--", "sleep", SECONDS])
        searcher.session.receive()
    samples = _samples(data)
    data.unlink()
    return {
        "L": size,
        "setting": setting.to_dict(),
        "samples": sum(samples.values()),
        "shares": _shares(samples, library, ranges),
    }


def _samples(data: Path) -> Counter[tuple[int, str, str]]:
    """Count samples by address, symbol and library."""
    found: Counter[tuple[int, str, str]] = Counter()
    for line in output_of(["perf", "script", "-i", data, "-F", "ip,sym,dso"]).splitlines():
        if sample := _SAMPLE.match(line):
            found[int(sample[1], 16), sample[2], sample[3]] += 1
    return found


def _shares(
    samples: Counter[tuple[int, str, str]], library: Path, ranges: list[tuple[int, int, int]]
) -> dict[str, float]:
    ours = [ip for ip, _, dso in samples if dso == str(library)]
    addresses = file_addresses(library, ranges, ours)
    known = frames(library, addresses.values())
    counts: Counter[str] = Counter()
    for (ip, symbol, dso), count in samples.items():
        if dso.startswith("[") and "vdso" not in dso:
            counts[KERNEL] += count
        else:
            here = known.get(addresses.get(ip, -1), [])
            counts[group([*here, Frame(symbol, dso)])] += count
    total = sum(counts.values())
    names = [name for name, _ in GROUPS]
    return {name: counts[name] / total for name in [*names, KERNEL, OTHER]} if total else {}


def group(chain: list[Frame]) -> str:
    """Name the group that the innermost telling frame belongs to."""
    for frame in chain:
        for name, pattern in GROUPS:
            if pattern.search(f"{frame.file} {frame.function}"):
                return name
    return OTHER


_LOADED = 1


@dataclass(frozen=True)
class Frame:
    """A function and the source file it stands in."""

    function: str
    file: str


def load_ranges(pid: int, library: Path) -> list[tuple[int, int, int]]:
    """Places of the parts of `library` in a process: first address, end, offset in the file."""
    found = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == str(library):
            first, end = (int(value, 16) for value in fields[0].split("-"))
            found.append((first, end, int(fields[2], 16)))
    return found


def file_addresses(library: Path, ranges: list[tuple[int, int, int]], ips: Iterable[int]) -> dict[int, int]:
    """Turn addresses of a process into those that the library's debug information speaks of.

    Addresses outside `ranges` are left out.
    """
    segments = _segments(library)
    found = {}
    for ip in ips:
        for first, end, offset in ranges:
            if first <= ip < end:
                place = ip - first + offset
                for file_offset, address, size in segments:
                    if file_offset <= place < file_offset + size:
                        found[ip] = place - file_offset + address
    return found


def frames(library: Path, addresses: Iterable[int]) -> dict[int, list[Frame]]:
    """Return the frames at each address, the innermost inlined function first (addr2line).

    Raises
    ------
    RuntimeError
        If addr2line fails.
    """
    wanted = sorted(set(addresses))
    command = ["addr2line", "-e", library, "-a", "-i", "-f", "-C"]
    text = output_of(command, given="".join(f"{address:#x}\n" for address in wanted))
    found: dict[int, list[Frame]] = {}
    lines = iter(text.splitlines())
    address = 0
    for line in lines:
        if line.startswith("0x"):
            address = int(line, 16)
            found[address] = []
        else:
            found[address].append(Frame(line, next(lines).rpartition(":")[0]))
    return found


def _segments(library: Path) -> list[tuple[int, int, int]]:
    """Loaded parts of a 64-bit little-endian ELF file: offset in the file, address, size."""
    data = library.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 32)
    entry_bytes, count = struct.unpack_from("<HH", data, 54)
    found = []
    for i in range(count):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, table + i * entry_bytes)
        if kind == _LOADED:
            found.append((offset, address, size))
    return found
