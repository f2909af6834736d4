"""The layer arrows of docs/ARCHITECTURE.md, held against every import statement."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What each layer may import, beside itself.
ALLOWED = {
    "formats": set(),
    "builders": {"formats", "reader.kernels", "reader.threads"},
    "layout": {"formats", "reader.kernels", "reader.threads"},
    "reader": {"formats"},
    "pipeline": {"builders", "layout", "formats", "reader"},
    "jobs": {"pipeline", "builders", "layout", "formats", "reader"},
}


def files(layer: str) -> list[Path]:
    folder = ROOT / "src/indexmill/reader" if layer == "reader" else ROOT / layer
    return list(folder.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Modules of indexmill that a file imports, without the package's name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.removeprefix("indexmill.") for name in names if name.startswith("indexmill.")}
    return found


@pytest.mark.parametrize("layer", ALLOWED)
def test_imports_follow_the_arrows(layer: str) -> None:
    assert files(layer), layer
    for path in files(layer):
        for module in imports(path):
            target = module.split(".")[0]
            allowed = target == layer or any(
                module == entry or module.startswith(entry + ".") for entry in ALLOWED[layer]
            )
            assert allowed or target == "__version__", f"{path} imports indexmill.{module}"


def test_one_file_knows_ray() -> None:
    users = []
    for layer in ALLOWED:
        for path in files(layer):
            tree = ast.parse(path.read_text())
            modules = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
            modules += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
            if any(m == "ray" or m.startswith("ray.") for m in modules):
                users.append(path.name)
    assert users == ["executor_ray.py"]


def test_builders_and_layout_know_no_path() -> None:
    for layer in ("builders", "layout"):
        for path in files(layer):
            names = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
            assert not names & {"Path", "open"}, path
