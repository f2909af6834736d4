"""The wheel in fresh environments: seconds from installing it to a first result, sizes, and what a search loads.

    python -m indexmill.jobs.bench.install --out DIR [--root DIR] [--arm-root DIR] [--wheel FILE] [--rounds N] [--keep]

Parts: `wheel` builds one, or takes FILE; `venv` installs it into virtual environments of the running Python, which
find no compiler; `root` does so in a Debian that
``debootstrap --variant=minbase --include=python3,python3-venv trixie DIR`` made, whose commands need the right to
mount; `arm` builds one for 64-bit ARM and searches with it in an emulator (see `arm`). pip's cache is not used: seconds
depend on the network.
"""

from __future__ import annotations

import re
import resource
import shlex
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any

from indexmill.jobs.bench.common.benchmark import Benchmark, Run, Target
from indexmill.jobs.bench.common.process import output_of, run_measured, told
from indexmill.jobs.bench.install import arm, wheel
from indexmill.jobs.bench.install.environment import Environment, seconds_until
from indexmill.jobs.devices.machine import REPOSITORY

ROUNDS = 3
#: The second of the two commands, and what it prints above the first result.
DEMO, FIRST = ("python", "-m", "indexmill.jobs.demo"), "Nearest words"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "gfortran", "cargo", "rustc")
#: Packages that neither `import indexmill` nor a search may load.
HEAVY = {"ray", "matplotlib", "h5py", "sklearn", "numba"}
#: Most MiB on the disk with all packages that it needs. At commit 73ad5565, when h5py, matplotlib and scikit-learn came
#: along, it was 127 more than without them: about 747 in the root. The limit is what Debian 12 took once they were
#: extras, 635, and 10.
MOST_MIB = 645
#: Processes that `import indexmill` is timed in.
IMPORTS = 5

#: Prints what an environment says of itself.
FACTS = """
import json, platform, shutil, sys
compilers = [one for one in sys.argv[1:] if shutil.which(one)]
system = platform.freedesktop_os_release()["PRETTY_NAME"]
facts = {"python": platform.python_version(), "system": system, "libc": " ".join(platform.libc_ver())}
print(json.dumps(facts | {"compilers": compilers}))
"""
_LOADED = """
import json, sys, time
before, began = set(sys.modules), time.perf_counter()
{code}
seconds = time.perf_counter() - began
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)
print(json.dumps({{"seconds": seconds, "packages": sorted(loaded - {{"indexmill"}})}}))
"""
_IMPORT = "import indexmill"
_SEARCH = """
import indexmill, numpy
index = indexmill.open("demo-out/identity")
assert index.search(numpy.ones((1, index.dim), numpy.float32)).ids.shape == (1, 10)
"""
#: Files that the commands of the README read.
_VECTORS = """
import numpy
for seed, (name, rows) in enumerate({"vectors": 20_000, "queries": 100, "more": 100}.items()):
    numpy.save(f"{name}.npy", numpy.random.default_rng(seed).normal(size=(rows, 64)).astype("float32"))
"""


def in_this_system(run: Run) -> dict[str, Any]:
    """Install and try the wheel in virtual environments of the running Python."""
    return _measure(run, Environment(run.out / "fresh"))


def in_root(run: Run) -> dict[str, Any]:
    """Install and try the wheel in the root of another system.

    Raises
    ------
    ValueError
        If no root is given.
    """
    root: Path | None = run.options.root
    if root is None:
        raise ValueError("--root: none given; name a folder that debootstrap made (see --help)")
    return _measure(run, Environment(Path("/srv/fresh"), root.resolve()))


def _measure(run: Run, environment: Environment) -> dict[str, Any]:
    """Install the wheel in a fresh environment each round; look around in the last one."""
    path = wheel.wheel_of(run)
    logs = run.out / "logs"
    logs.mkdir(exist_ok=True)
    name = "venv" if environment.root is None else "root"
    rounds = []
    for _ in range(run.options.rounds or ROUNDS):
        environment.make()
        shutil.copy2(path, environment.seen(environment.home))
        install = environment.command("pip", "install", "--no-cache-dir", environment.home / path.name)
        installed = run_measured(install, logs / f"{name}-install.log")
        sizes = environment.bytes_of_packages()
        before = _cpu_s()
        first_s, demo_s = seconds_until(environment.command(*DEMO), logs / f"{name}-demo.log", FIRST)
        rounds.append(
            {
                "install_s": installed.wall_s, "install_cpu_s": installed.cpu_s,
                "first_s": first_s, "demo_s": demo_s, "demo_cpu_s": _cpu_s() - before,
            }
        )  # fmt: skip
    firsts = [one["install_s"] + one["first_s"] for one in rounds]
    report = environment.seen(environment.home) / "demo-out" / "report" / "index.html"
    loads = {
        "import": _loaded(environment, _IMPORT, IMPORTS),
        "search": _loaded(environment, _SEARCH, 1),
    }
    return {
        **told(environment.command("python", "-c", FACTS, *COMPILERS)),
        "rounds": rounds,
        **{key: median(one[key] for one in rounds) for key in rounds[0]},
        "first_result": {"value": median(firsts), "low": min(firsts), "high": max(firsts)},
        "installed_bytes": sum(sizes.values()),
        "packages": sizes,
        "kernels_bytes": environment.bytes_of_packages()["indexmill"] - sizes["indexmill"],
        "report_bytes": report.stat().st_size,
        "loads": loads,
        "heavy": sorted(HEAVY & {package for one in loads.values() for package in one["packages"]}),
        "commands": _tried(environment),
    }


def _loaded(environment: Environment, code: str, processes: int) -> dict[str, Any]:
    """Return the packages that `code` loads, and the median of its seconds in as many processes."""
    command = environment.command("python", "-c", _LOADED.format(code=code))
    found = [told(command) for _ in range(processes)]
    return {"seconds": median(one["seconds"] for one in found), "packages": found[0]["packages"]}


def _tried(environment: Environment) -> list[dict[str, Any]]:
    """Run what the README shows, one after another; return the seconds of each."""
    code, commands = shown(REPOSITORY / "README.md")
    output_of(environment.command("python", "-c", _VECTORS))
    example = environment.command("python", "-c", code)
    rows = [{"command": "the example in Python", "seconds": _seconds(example)}]
    checks = ["indexmill --help", "indexmill verify my.index"]
    for line in [*commands, *checks]:
        rows.append({"command": line, "seconds": _seconds(environment.command(*shlex.split(line)))})
    return rows


def _cpu_s() -> float:
    """Return the processor's seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    output_of(command)
    return time.perf_counter() - began


def shown(page: Path) -> tuple[str, list[str]]:
    """Return the example in Python of the README, and the commands after it."""
    use = page.read_text().partition("\n## Use it\n")[2].partition("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", use, re.DOTALL)
    return code[0], re.findall(r"^    (indexmill .*)$", use, re.MULTILINE)


BENCHMARK = Benchmark[Run](
    "install",
    {"wheel": wheel.measure, "venv": in_this_system, "root": in_root, "arm": arm.measure},
    sets=(),
    targets=(
        Target("size of the wheel", "wheel.bytes / MB", "<=", 15, "MB"),
        Target("from the wheel to a first result, this system", "venv.first_result", "<=", 60, "s"),
        Target("the same in the root, without compilers", "root.first_result", "<=", 60, "s"),
        Target("installed, with all that it needs, this system", "venv.installed_bytes / MIB", "<=", MOST_MIB, "MiB"),
        Target("the same in the root", "root.installed_bytes / MIB", "<=", MOST_MIB, "MiB"),
        Target("size of the wheel for 64-bit ARM", "arm.bytes / MB", "<=", 15, "MB"),
        Target("share of queries that it answers the same in an emulator", "arm.same / arm.queries", ">=", 0.99),
        Target("packages among " + ", ".join(sorted(HEAVY)) + " that an import or a search loads",
               "root.heavy|length", "<=", 0),
    ),
    options={
        "--wheel": {"type": Path, "metavar": "FILE", "help": "install this one, in place of one built here"},
        "--root": {"type": Path, "metavar": "DIR", "help": "of a system without compilers, for the part root"},
        "--arm-root": {"type": Path, "metavar": "DIR", "help": "of a system for 64-bit ARM, for the part arm"},
        "--arm-wheel": {"type": Path, "metavar": "FILE", "help": "try this one in the part arm"},
        "--rounds": {"type": int, "metavar": "N", "help": f"install so often (default: {ROUNDS})"},
    },
)  # fmt: skip

if __name__ == "__main__":
    BENCHMARK.main()
