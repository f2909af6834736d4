"""Digests of small indexes of every kind and path, to compare before and after a change that is to keep all bytes.

    python -m tests.support.digests --write FILE            record them
    python -m tests.support.digests --check tests/support/digests/digests.json
    python -m tests.support.digests lsh ivf --workers 1     print those of some groups

A digest is the SHA-256 of every file's name and content, sorted by name. Left out are run.json, which has seconds in
it, and of manifest.json the versions of software and the digest over them.

Digests are of a machine. Products of floats may differ in their last bits between processors: with the BLAS kernels of
an older one (OPENBLAS_CORETYPE=Haswell) rotations of OPQ do. faiss and Arrow write files that differ between their
versions. So no test compares with the record, which says where it was made; on another machine record the commit before
the change, and check the one after it with that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

from tests.support.digests.groups import GROUPS
from tests.support.digests.site import Site
from tests.support.digests.written import Written

_PACKAGES = ("numpy", "numba", "scipy", "scikit-learn", "pyarrow", "h5py", "faiss-cpu")
#: Parts of a manifest that depend on software: versions, and the digest of the text.
_VERSIONS = re.compile(rb'  "software": \{[^}]*\},\n')
_SEAL = re.compile(rb',\n  "digest": "[0-9a-f]{64}"')


def digests(
    groups: Iterable[str], folder: Path, workers: int, keep: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield the name and the digest of each case of `groups`.

    Parameters
    ----------
    folder : path
        Each group writes into a new directory below it, which is deleted after it unless `keep` is set.
    workers : int
        Threads; no digest depends on them.
    """
    for group in groups:
        site = Site(folder / group, workers)
        site.folder.mkdir(parents=True)
        for name, written in GROUPS[group](site):
            yield f"{group}/{name}", digest(written)
        if not keep:
            shutil.rmtree(site.folder)


def digest(written: Written) -> str:
    """Return the SHA-256 of a directory, of a file, or of arrays by name."""
    found = hashlib.sha256()
    if isinstance(written, dict):
        for name, array in sorted(written.items()):
            found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            found.update(array.tobytes())
        return found.hexdigest()
    files = [path for path in written.rglob("*") if path.is_file()] if written.is_dir() else [written]
    for path in sorted(files, key=lambda path: path.relative_to(written.parent).as_posix()):
        if path.name == "run.json":
            continue
        content = path.read_bytes()
        if path.name == "manifest.json":
            content = _SEAL.sub(b"", _VERSIONS.sub(b"", content))
        name = path.relative_to(written).as_posix() if path != written else "file"
        found.update(f"{name} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def machine() -> dict[str, str]:
    """Return the processor and the versions of packages, on which digests depend."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    said = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", text, re.MULTILINE))
    named = "{model name} (family {cpu family}, model {model})".format_map(said) if len(said) == 3 else ""
    return {
        "processor": named or platform.processor() or platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }


def main() -> int:
    """Print the digests; 1 if they are not those of the record."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.digests", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"default: all of {', '.join(GROUPS)}")
    parser.add_argument("--write", type=Path, metavar="FILE", help="record the digests")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare them with a record")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory to leave the files in")
    asked = parser.parse_args()
    if unknown := set(asked.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    if asked.write and asked.groups:
        parser.error("--write: a record has all groups; leave them out")
    groups, started = asked.groups or list(GROUPS), time.perf_counter()
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, value in digests(
            groups, asked.keep or Path(scratch), asked.workers, asked.keep is not None
        ):
            assert name not in found, name
            found[name] = value
            print(f"{value}  {name}", flush=True)
    print(f"{len(found)} digests in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    if asked.write:
        asked.write.write_text(json.dumps({"machine": machine(), "digests": found}, indent=1) + "\n")
    return compare(asked.check, found, groups) if asked.check else 0


def compare(record: Path, found: dict[str, str], groups: list[str]) -> int:
    """Say on stderr what differs from a record in these groups; 1 if anything does."""
    stored = json.loads(record.read_text())
    wanted = {name: value for name, value in stored["digests"].items() if name.split("/")[0] in groups}
    here = machine()
    for name, value in stored["machine"].items():
        if here.get(name) != value:
            print(f"{record}: made with {name} {value}, here it is {here.get(name)}", file=sys.stderr)
    wrong = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    for name in wrong:
        what = "differs" if name in wanted and name in found else "is new" if name in found else "is missing"
        print(f"{name} {what}", file=sys.stderr)
    print(
        f"{len(wanted) - len(set(wrong) & set(wanted))} of {len(wanted)} are those of {record}",
        file=sys.stderr,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
