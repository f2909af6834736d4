"""The modules of the Rust core form layers: no circle of imports, and no arrow that points upwards."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "reader/core/src"

# A module is named by its path below the crate, "" being lib.rs. Modules that are not named here stand at the bottom.
KINDS = ("graph", "lsh", "ivf")
FLOORS = {"search": 1} | dict.fromkeys(KINDS, 2) | {"verify": 3, "": 4}

# Comments, strings and character literals (a lifetime has no closing quote): names in them do not count.
_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|b?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\]|\\.[^']*)'""", re.DOTALL
)
_TEST_ONLY = "#[cfg(test)]"
_DECLARATION = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
_INNER = re.compile(r"\bmod\s+\w+\s*\{")
_USE = re.compile(r"\buse\s+([^;]+);")
_PATH = re.compile(r"(?<![\w:])(\w+)((?:::\w+)+)")


def code_of(text: str) -> str:
    """Rust source without comments, strings and what is compiled for tests only."""
    code = _NOT_CODE.sub(" ", text)
    while (start := code.find(_TEST_ONLY)) >= 0:
        code = code[:start] + code[_end_of_item(code, start + len(_TEST_ONLY)) :]
    # A module inside of a file belongs to the file: what is above it is the file itself.
    for inner in reversed(list(_INNER.finditer(code))):
        end = _end_of_item(code, inner.start())
        code = code[: inner.start()] + code[inner.start() : end].replace("super::", "self::") + code[end:]
    return code


def _end_of_item(code: str, start: int) -> int:
    """Where the item that begins at `start` ends: after its block, or its `;` or `,` outside of all brackets."""
    depth = 0
    for i in range(start, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth == 0 and code[i] == "}":
                return i + 1
        elif code[i] in ";," and depth == 0:
            return i + 1
    return len(code)


def leaves_of(tree: str) -> Iterator[tuple[list[str], str]]:
    """Each path of a `use` tree with the name that it brings."""
    tree = " ".join(tree.split())
    brace = tree.find("{")
    if brace < 0:
        path, _, alias = tree.partition(" as ")
        segments = path.strip().split("::")
        if segments[-1] == "self":
            segments.pop()
        yield segments, alias.strip() or segments[-1]
        return
    head, inner, depth, part = tree[:brace], tree[brace + 1 : tree.rindex("}")], 0, ""
    for letter in inner + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if part.strip():
                yield from leaves_of(head + part.strip())
            part = ""
        else:
            part += letter


class Crate:
    """The modules of a crate that are compiled outside of tests, and which of them each imports."""

    def __init__(self, sources: Path) -> None:
        self.code: dict[str, str] = {}
        self.children: dict[str, set[str]] = {}
        self._read(sources / "lib.rs", sources, "")
        self.brought = {
            module: {
                name: path for tree in _USE.findall(code) for path, name in leaves_of(tree) if name != "_"
            }
            for module, code in self.code.items()
        }
        self.imports = {module: self._imports_of(module) for module in self.code}

    def _read(self, path: Path, folder: Path, module: str) -> None:
        self.code[module] = code_of(path.read_text())
        self.children[module] = set(_DECLARATION.findall(self.code[module]))
        for name in self.children[module]:
            below = f"{module}::{name}" if module else name
            file = folder / f"{name}.rs"
            self._read(file if file.exists() else folder / name / "mod.rs", folder / name, below)

    def _imports_of(self, module: str) -> set[str]:
        code = self.code[module]
        paths = [path for tree in _USE.findall(code) for path, _ in leaves_of(tree)]
        paths += [[head, *rest.split("::")[1:]] for head, rest in _PATH.findall(_USE.sub(";", code))]
        return {found for path in paths if (found := self.home(module, path)) is not None} - {module}

    def home(
        self, module: str, path: list[str], seen: frozenset[tuple[str, str]] = frozenset()
    ) -> str | None:
        """The module that defines what `path` means in `module`; None where that is another crate's."""
        head, *rest = path
        if head == "crate":
            at = ""
        elif head in ("self", "super"):
            at = module
            rest = path
            while rest and rest[0] in ("self", "super"):
                at = at if rest[0] == "self" else at.rpartition("::")[0]
                rest = rest[1:]
        elif head in self.children[module]:
            at, rest = module, path
        else:
            return None
        for i, name in enumerate(rest):
            if name in self.children[at]:
                at = f"{at}::{name}" if at else name
            elif (brought := self.brought[at].get(name)) is not None and (at, name) not in seen:
                return self.home(at, brought + rest[i + 1 :], seen | {(at, name)}) or at
            else:
                break
        return at


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """A shortest circle of modules, each of which imports the next; its first one is also its last. Or nothing."""
    circles = [circle for start in sorted(imports) if (circle := _way_back_to(start, imports))]
    return min(circles, key=len, default=[])


def _way_back_to(start: str, imports: dict[str, set[str]]) -> list[str]:
    ways, seen = deque([[start]]), set[str]()
    while ways:
        way = ways.popleft()
        for below in sorted(imports[way[-1]] - seen):
            if below == start:
                return [*way, start]
            seen.add(below)
            ways.append([*way, below])
    return []


def test_no_circle_of_modules_in_the_rust_core() -> None:
    circle = circle_in(
        {name or "lib": {below or "lib" for below in used} for name, used in CORE.imports.items()}
    )
    assert not circle, "modules of reader/core/src import each other: " + " -> ".join(circle)


def test_modules_of_the_rust_core_import_only_what_stands_below_them() -> None:
    upward = []
    for module, used in CORE.imports.items():
        for below in sorted(used):
            top, top_below = module.split("::")[0], below.split("::")[0]
            floor, floor_below = FLOORS.get(top, 0), FLOORS.get(top_below, 0)
            if floor_below > floor or (top in KINDS and top_below in KINDS and top != top_below):
                upward.append(f"{module} imports {below}")
    assert not upward, f"reader/core/src: {'; '.join(upward)}"


def test_every_floor_has_modules() -> None:
    tops = {module.split("::")[0] for module in CORE.imports}
    assert set(FLOORS) <= tops
    assert {"engine", "distance", "pagefile", "ids", "vectors"} <= tops - set(FLOORS)


def test_imports_are_found_in_every_form_of_them(tmp_path: Path) -> None:
    files = {
        "lib.rs": "pub mod low;\nmod kind;\npub use kind::Index;\n#[cfg(test)]\nmod tests;\n",
        "low.rs": 'pub struct Low; // crate::kind::Index\nconst TEXT: &str = "crate::kind";\n'
        "#[cfg(test)]\nmod tests { use crate::kind::Index; }\n",
        "kind/mod.rs": "mod part;\nmod query;\npub(crate) use query::{Query as Asked, self as asking};\n"
        "pub struct Index(part::Part);\n",
        "kind/part.rs": "use crate::{low::{self, Low}};\npub struct Part(Low);\n",
        "kind/query.rs": "pub struct Query<'a>(&'a super::part::Part, char);\nconst C: char = '\"';\n",
        "kind/unused.rs": "use crate::kind::Index;\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    crate = Crate(tmp_path)
    assert crate.imports == {
        "": {"kind"},
        "low": set(),
        "kind": {"kind::part", "kind::query"},
        "kind::part": {"low"},
        "kind::query": {"kind::part"},
    }
    assert crate.home("low", ["crate", "kind", "Asked"]) == "kind::query"
    assert circle_in(crate.imports) == []
    (tmp_path / "kind/part.rs").write_text("use super::Index;\n")
    assert circle_in(Crate(tmp_path).imports) == ["kind", "kind::part", "kind"]
    (tmp_path / "kind/part.rs").write_text("fn f(x: super::Asked) {}\n")
    circle = circle_in(Crate(tmp_path).imports)
    assert all(below in Crate(tmp_path).imports[module] for module, below in pairwise(circle))
    assert circle == ["kind::part", "kind::query", "kind::part"]


CORE = Crate(SOURCES)
