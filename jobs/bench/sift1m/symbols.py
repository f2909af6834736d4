"""Which source lines an address of a shared library belongs to, functions that were inlined there included."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LOADED = 1


@dataclass(frozen=True)
class Frame:
    """A function and the source file it stands in."""

    function: str
    file: str


def load_ranges(pid: int, library: Path) -> list[tuple[int, int, int]]:
    """Where a process has the parts of `library`: first address, end, offset in the file."""
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
    done = subprocess.run(
        ["addr2line", "-e", str(library), "-a", "-i", "-f", "-C"],
        input="".join(f"{address:#x}\n" for address in wanted),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"addr2line: exit code {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[int, list[Frame]] = {}
    lines = iter(done.stdout.splitlines())
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
