"""The site of the documentation: `make docs` makes it in build/docs/html and fails on any warning.

The pages are those that read well on GitHub. What only a site needs is added here: tables of contents, and links that
leave the folder of the pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import indexmill
from indexmill.pipeline import spec

ROOT = Path(__file__).parent.parent
#: The report of the demonstration, which `make docs` writes first; the page `demo` shows it.
EXTRA = ROOT / "build/docs/extra"
REPORT = EXTRA / "demo/index.html"
if not REPORT.is_file():
    raise FileNotFoundError(
        f"{REPORT}: the report of the demonstration is missing; run `make docs`, which makes it"
    )

project = "indexmill"
author = "the authors of indexmill"
version = release = indexmill.__version__
root_doc = "index"
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
nitpicky = True
nitpick_ignore_regex = [("py:obj", r"sklearn\..*")]  # the site is built without asking other sites
suppress_warnings = ["myst.header"]  # tables of benchmarks skip levels of headings
html_theme = "pydata_sphinx_theme"
html_title = f"indexmill {release}"
html_extra_path = [str(EXTRA)]
html_theme_options = {
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
}

# Pages without pages below them need no list of these.
html_sidebars: dict[str, list[str]] = {
    page: [] for page in ("tutorial", "demo", "benchmarks", "glossary", "ARCHITECTURE", "project/*")
}

# Single backticks of docstrings: a link where a name can be found, else the name.
default_role = "autolink"
# Docstrings state types in words, with shapes; annotations name modules that no reader imports.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

#: Pages that list other pages, and the folder of these: they become the table of contents below the page.
SECTIONS = {"README": "guides/", "formats/README": "", "papers/README": "", "reference/README": ""}
#: Pages of the site that lie at the top of the repository.
TAKEN = {"index": "README.md", "project/changelog": "CHANGELOG.md", "project/contributing": "CONTRIBUTING.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(((?![a-z]+:|#)[^)\s#]+)([^)\s]*)\)")


def contents(page: str, folder: str) -> str:
    """Make a table of contents of what `page` links to in `folder`, in that order."""
    links = dict.fromkeys(re.findall(rf"\]\(({folder}[\w-]+)\.md\)", page))
    return "\n".join(["", "```{toctree}", ":hidden:", "", *links, "```", ""])


def moved_links(page: str, old: Path, new: Path) -> str:
    """Rewrite the links of a page that is shown at the place `new` instead of `old`.

    Links to a page of `TAKEN` lead to it within the site. Links to a folder, or to another page outside of docs, are
    dropped, as the site shows neither; other files can be downloaded.
    """
    shown = {ROOT / file: ROOT / "docs" / f"{name}.md" for name, file in TAKEN.items()}

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(old.parent / link[2]))
        hidden = target.suffix == ".md" and target not in shown and not target.is_relative_to(ROOT / "docs")
        if target.is_dir() or hidden:
            return link[1]
        return f"[{link[1]}]({os.path.relpath(shown.get(target, target), new.parent)}{link[3]})"

    return _LINK.sub(moved, page)


def complete(app: Any, docname: str, source: list[str]) -> None:
    """Add to a page what only the site needs, before it is parsed."""
    place = Path(app.srcdir) / f"{docname}.md"
    if not place.exists():
        return
    page = moved_links(source[0], place, place)
    if docname in SECTIONS:
        title, line, rest = page.partition("\n")
        page = title + line + contents(page, SECTIONS[docname]) + rest
    if docname in TAKEN:
        file = ROOT / TAKEN[docname]
        app.env.note_dependency(str(file))
        page = f"{moved_links(file.read_text(encoding='utf-8'), file, place)}\n{page}"
    source[0] = page


def describe_key(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Add to the description of a key of jobs its short name, and its default where the text says nothing of one."""
    owner, _, field = name.rpartition(".")
    model = getattr(spec, owner.rpartition(".")[2], None)
    info = getattr(model, "model_fields", {}).get(field)
    if info is None:
        return
    said = [f"Short name ``{info.alias}``."] if info.alias else []
    if isinstance(info.default, bool | int | float | str) and "default" not in " ".join(lines).lower():
        said.append(f"Default: ``{info.default}``.")
    while lines and not lines[-1]:
        lines.pop()
    lines += ["", " ".join(said), ""]


def setup(app: Any) -> None:
    """Let Sphinx call `complete` for each page that it reads, and `describe_key` for each key of jobs."""
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", describe_key)
