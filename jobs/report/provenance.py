"""The section of a page that says where its numbers come from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from indexmill.jobs.console.tables import human_bytes, scalars, short
from indexmill.jobs.report.blocks import folded, section
from indexmill.jobs.report.markup import Markup, element


def origin(found: dict[str, Any]) -> Markup:
    """Tell date, machine, software, and of each index its identity, parameters and manifest."""
    machine = found["machine"] | {"memory": human_bytes(found["machine"]["memory_bytes"])}
    del machine["memory_bytes"]
    about = {"date": found["date"], **machine, **found["software"], "commit": found["commit"]}
    lists = [_list("This comparison", about), *(_index(one) for one in found["indexes"])]
    return section("provenance", "Parameters and provenance", None, element("div", *lists, class_="origins"))


def _index(one: dict[str, Any]) -> Markup:
    manifest = one["manifest"]
    about = {
        "build id": manifest["build_id"],
        "generation": manifest.get("generation", 1),
        "size": human_bytes(one["bytes"]),
        "engine": one["engine"],
        "note": one["engine_note"],
        "file system": one["file_system"],
        **scalars(manifest["input"]),
        **scalars(manifest["parameters"]),
    }
    whole = element("pre", json.dumps(manifest, indent=1, ensure_ascii=False))
    return element("div", _list(one["index"], about), folded("The whole manifest", whole))


def _list(title: str, values: Mapping[str, Any]) -> Markup:
    lines = [
        element("div", element("dt", name.replace("_", " ")), element("dd", short(value)))
        for name, value in values.items()
        if value is not None
    ]
    return element("div", element("h3", title), element("dl", *lines))
