"""The shape of the code, held against every import statement: layers, floors of pipeline, no circles, few parameters,
and no private name in a test.

Imports inside functions and under TYPE_CHECKING count as any others.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from tests.support.slow import SLOW

ROOT = Path(__file__).parent.parent
PACKAGES = ("builders", "formats", "jobs", "layout", "pipeline")
#: What each layer may import, beside itself.
ALLOWED = {
    "formats": set(),
    "builders": {"formats", "reader.kernels", "reader.threads"},
    "layout": {"builders.nearest", "formats", "reader.kernels", "reader.threads"},
    "reader": {"formats"},
    "pipeline": {"builders", "layout", "formats", "reader"},
    "jobs": {"pipeline", "builders", "layout", "formats", "reader"},
}
#: Rooms of pipeline/, one floor a line: each imports itself and what stands below it.
FLOORS = (
    {"update"},
    {"tune", "reorder", "merge", "export"},
    {"compact"},
    {"cut"},
    {"cluster"},
    {"plan", "relayout"},
    {"sets"},
    {"build", "join", "imports", "append", "hnsw"},
    {"generations", "grouping", "rehearsal"},
    {"spec"},
    {"kinds"},
    {"urls"},
    {"mill"},
    {"execution"},
    {"cost", "bootstrap", "bisection", "draws", "devices"},
)
RAY_USERS = ["pipeline/execution/ray.py"]
MOST_MODULES = 20
#: Folders of many small modules that are alternatives of each other.
LARGE_FOLDERS = {"formats/exports"}
MOST_PARAMETERS = 12
#: Modules and functions that name, read or write files.
FILE_MODULES = {"pathlib", "os", "io", "shutil", "tempfile", "mmap", "glob"}
FILE_FUNCTIONS = {
    "Path", "open", "load", "loadtxt", "save", "savez", "savetxt", "memmap", "open_memmap", "fromfile", "tofile",
    "genfromtxt", "read_bytes", "read_text", "write_bytes", "write_text",
}  # fmt: skip
#: Methods of named tuples, which have an underscore so that no field is called so.
OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
#: Private names that tests may use, by their file, each with its reason.
PRIVATE_IN_TESTS = {
    (
        "formats/test_kernel.py",
        "_cache",
    ),  # numba's, of a kernel of the test: nothing else tells which files it uses
    ("formats/test_kernel.py", "_cache_file"),
}
#: The compiled reader, which has no public name of its own; tests hold Python's reader against it.
COMPILED = "indexmill.reader._native"
KERNEL_DECORATORS = {"kernel", "njit", "jit", "vectorize", "guvectorize", "intrinsic", "overload"}


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its name."""
    found = {"indexmill": ROOT / "src/indexmill/__init__.py"}
    for folder, base in [
        (ROOT / "src/indexmill/reader", ROOT / "src"),
        *((ROOT / p, ROOT) for p in PACKAGES),
    ]:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            name = ".".join(parts if parts[0] == "indexmill" else ("indexmill", *parts))
            found[name.removesuffix(".__init__")] = path
    return found


def parsed(code: str) -> list[ast.AST]:
    """Every node of a module, the module itself first."""
    gc.disable()  # a collection would walk all trees there are, again and again while this one grows
    try:
        return list(ast.walk(ast.parse(code)))
    finally:
        gc.enable()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a file, which several tests look through."""
    return parsed(path.read_text())


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Module and name of every import; the name is empty where a module is imported as a whole."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield from ((node.module, alias.name) for alias in node.names)


@cache
def edges() -> dict[str, list[str]]:
    """Modules of the package that each module imports."""
    return {
        name: sorted({m for one in imported(path) if (m := module_of(*one))} - {name})
        for name, path in modules().items()
    }


def module_of(module: str, name: str) -> str | None:
    """Return the module of the package that an import names, None for other packages and for the version."""
    if module.split(".")[0] != "indexmill" or (module, name) == ("indexmill", "__version__"):
        return None
    whole = f"{module}.{name}"
    return whole if whole in modules() else module


def layer_of(module: str) -> str:
    return [*module.split("."), ""][1]


def package_of(module: str) -> str:
    """Return the package, so the folder, that a module lies in."""
    return module if modules().get(module, Path()).name == "__init__.py" else module.rpartition(".")[0]


def circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """Sets of modules that reach each other, largest first (Tarjan 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph.get(module, []):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return sorted((one for one in found if len(one) > 1), key=len, reverse=True)


@pytest.mark.parametrize("layer", ALLOWED)
def test_imports_follow_the_arrows(layer: str) -> None:
    mine = [name for name in modules() if layer_of(name) == layer]
    assert mine, layer
    for name in mine:
        for other in edges()[name]:
            if other == "indexmill" and name.startswith("indexmill.jobs.bench."):
                continue  # benchmarks use the package as its users do
            target = other.removeprefix("indexmill.")
            allowed = layer_of(other) == layer or any(
                target == entry or target.startswith(entry + ".") for entry in ALLOWED[layer]
            )
            assert allowed, f"{name} imports {other}"


def test_a_room_of_pipeline_imports_what_stands_below_it() -> None:
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    for name in modules():
        if layer_of(name) != "pipeline" or name == "indexmill.pipeline":
            continue
        room = name.split(".")[2]
        assert room in floor, f"{name}: on no floor of this test"
        for other in edges()[name]:
            target = other.split(".")[2] if layer_of(other) == "pipeline" else room
            assert target == room or floor[target] > floor[room], f"{name} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles({"a": ["b"], "b": ["c"], "c": ["b"]}) == [["b", "c"]]
    assert circles(edges()) == []


@cache
def rooms() -> dict[str, set[str]]:
    """Folders of each layer, and what each imports of the rest of its layer, by names without the layer."""
    found = {}
    for name, path in modules().items():
        if path.name == "__init__.py" and name.count(".") == 2:
            inside = [one for one in modules() if one == name or one.startswith(name + ".")]
            others = {other for one in inside for other in edges()[one]} - set(inside)
            layer = layer_of(name)
            found[name] = {
                other.split(".")[2] for other in others if layer_of(other) == layer and other.count(".") > 1
            }
    return found


def stated(name: str) -> tuple[str, set[str]] | None:
    """The sentence of a folder's docstring on its imports, and what it names of its layer."""
    text = " ".join((ast.get_docstring(nodes(modules()[name])[0]) or "").split())
    sentence = re.search(r"\bImports ((?:`[^`]+`|[^.;`])+)", text)
    if sentence is None:
        return None
    names = [] if sentence[1].startswith(("no ", "none ")) else re.findall(r"`([^`]+)`", sentence[1])
    return sentence[1], {one.removeprefix(layer_of(name) + ".") for one in names}


def test_folders_import_what_their_docstrings_say() -> None:
    """All folders, and no file that is not imported; a sentence may leave out files that lie in no folder."""
    checked = 0
    for name, imports in rooms().items():
        said = stated(name)
        if said is None:
            continue
        checked += 1
        sentence, named = said
        siblings = {
            one.rpartition(".")[2] for one in rooms() if layer_of(one) == layer_of(name) and one != name
        }
        if sentence.startswith("every other"):
            named = siblings - named
        assert named <= imports, f"{name} does not import {named - imports}"
        if "floors below" not in sentence:  # which `FLOORS` holds
            assert imports & siblings <= named, f"{name} imports {imports & siblings - named}"
    assert checked > 30


def test_no_folders_of_jobs_import_each_other() -> None:
    folders = {
        name.rpartition(".")[2]: sorted(of) for name, of in rooms().items() if layer_of(name) == "jobs"
    }
    assert circles(folders) == []


def test_private_names_stay_in_their_package() -> None:
    found = []
    for importer, path in modules().items():
        for module, name in imported(path):
            if not module.startswith("indexmill"):
                continue
            owner = module
            for part in [*module.split("."), name]:
                private = part.startswith("_") and not part.startswith("__")
                if private and part in module.split("."):
                    owner = module[: module.index("." + part)]
                if private and package_of(importer) != (owner if owner != module else package_of(module)):
                    found.append(f"{importer}: {module} {name}")
    assert found == []


def foreign_attributes(module: Sequence[ast.AST]) -> set[str]:
    """Private attributes of other objects or modules than `self` that the module does not define itself."""
    known = set(defined(module)) | OF_NAMED_TUPLES
    return {
        ast.unparse(one)
        for one in module
        if isinstance(one, ast.Attribute) and is_private(one.attr) and one.attr not in known
        if not (isinstance(one.value, ast.Name) and one.value.id in ("self", "cls"))
        if ast.unparse(one.value) != "super()"
    }


def test_private_attributes_stay_in_their_module() -> None:
    """Except what a class has for its subclasses, which they reach through `self`."""
    code = "import a\na._b\nc()._d\nself._e\nsuper()._f\nt._replace()\nself._g = other._g"
    assert foreign_attributes(parsed(code)) == {"a._b", "c()._d"}
    found = {(name, use) for name, path in modules().items() for use in foreign_attributes(nodes(path))}
    assert found == set()


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def defined(module: Sequence[ast.AST]) -> Iterator[str]:
    """Private names that a module defines anywhere: functions, classes, constants and attributes."""
    for one in module:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [one.name]
        elif isinstance(one, ast.Name | ast.Attribute) and isinstance(one.ctx, ast.Store):
            names = [one.id if isinstance(one, ast.Name) else one.attr]
        else:
            continue
        yield from filter(is_private, names)


def last_name(node: ast.AST) -> str:
    """Return the name of a variable, or that of an attribute after its last dot; of anything else the empty string."""
    return getattr(node, "attr", getattr(node, "id", ""))


def private_uses(module: Sequence[ast.AST], names: set[str]) -> set[str]:
    """Private names of the package, `names`, that a test module imports, reads or patches."""
    foreign, found = names - set(defined(module)), set()
    for one in module:
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("indexmill"):
            whole = [f"{one.module}.{alias.name}" for alias in one.names]
            found |= {name for name in whole if name != COMPILED and any(map(is_private, name.split(".")))}
        elif isinstance(one, ast.Attribute) and one.attr in foreign:
            found.add(one.attr)
        elif isinstance(one, ast.Call) and "attr" in last_name(one.func):  # setattr and its like
            texts = [
                a.value for a in one.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            found |= names & {text.split(".")[-1] for text in texts}
    return found


def test_tests_use_public_names() -> None:
    """What a test shrinks or looks at has a public name, or is given to a call: private names may change unseen."""
    code = "from indexmill.a import _b\nc._d\nm.setattr(c, '_e', 1)\nm.setattr('indexmill.a._f', 1)\nself._g = g._g"
    assert private_uses(parsed(code), {"_d", "_e", "_f", "_g"}) == {"indexmill.a._b", "_d", "_e", "_f"}
    names = {name for path in modules().values() for name in defined(nodes(path))}
    found = {
        (str(path.relative_to(ROOT / "tests")), name)
        for path in (ROOT / "tests").rglob("*.py")
        for name in private_uses(nodes(path), names)
    }
    assert found - PRIVATE_IN_TESTS == set()


def test_one_file_knows_ray() -> None:
    users = {
        str(path.relative_to(ROOT))
        for path in modules().values()
        for module, _ in imported(path)
        if module.split(".")[0] == "ray"
    }
    assert sorted(users) == RAY_USERS


def touches_files(module: Sequence[ast.AST]) -> set[str]:
    """What of a module reads, writes or names files: built in, of the standard library, of numpy."""
    found = set()
    for one in module:
        if isinstance(one, ast.Name):
            found |= {one.id} & {"Path", "open"}
        elif isinstance(one, ast.Attribute) and one.attr in FILE_FUNCTIONS:
            found.add(ast.unparse(one))
        elif isinstance(one, ast.Import | ast.ImportFrom):
            of = [getattr(one, "module", None) or "", *(alias.name for alias in one.names)]
            found |= {module for module in of if module.split(".")[0] in FILE_MODULES | {"memmap"}}
    return found


def test_builders_and_layout_know_no_path() -> None:
    for code in ("pathlib.Path(a)", "import os.path", "np.load(a)", "x.tofile(a)", "np.memmap(a)", "open(a)"):
        assert touches_files(parsed(code)), code
    for name, path in modules().items():
        if layer_of(name) in ("builders", "layout"):
            assert touches_files(nodes(path)) == set(), path


def test_folders_are_small_enough_to_be_read() -> None:
    """No folder has many modules, except those that hold alternatives of one thing."""
    sources = [
        path.relative_to(ROOT)
        for top in (*PACKAGES, "src", "reader", "tests")
        for path in (ROOT / top).rglob("*")
        if path.suffix in (".py", ".rs") and path.name != "__init__.py" and "target" not in path.parts
    ]
    sizes = Counter(path.parent for path in sources)
    assert {str(folder) for folder, size in sizes.items() if size > MOST_MODULES} == LARGE_FOLDERS


def test_functions_have_few_parameters_unless_they_are_kernels() -> None:
    many = []
    tests = {str(path.relative_to(ROOT)): path for path in (ROOT / "tests").rglob("*.py")}
    for name, path in (modules() | tests).items():
        for node in nodes(path):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            decorators = {ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
            if {d.split(".")[-1] for d in decorators} & KERNEL_DECORATORS:
                continue
            given = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            n = len([one for one in given if one not in ("self", "cls")])
            if n > MOST_PARAMETERS:
                many.append(f"{name}.{node.name}: {n}")
    assert many == []


def test_the_list_of_slow_tests_names_tests() -> None:
    for line in SLOW.read_text().split():
        module, _, function = line.partition("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / module).read_text(), f"tests/slow.txt: {line}"
