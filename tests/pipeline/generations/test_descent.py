"""Descent in manifests: each contained index once, and nothing of what was deleted."""

from __future__ import annotations

import hashlib

from indexmill.formats.index.manifest import Manifest
from indexmill.pipeline.generations.descent import changed_input, descent_of, fingerprint_of, made_of


def manifest(
    build_id: str, generation: int = 1, parents: tuple[str, ...] = (), ancestors: tuple[str, ...] = ()
) -> Manifest:
    return Manifest(
        kind="ivf", build_id=build_id, generation=generation, parents=parents, ancestors=ancestors,
        deleted={"vectors": 1}, parameters={"lists": 2}, input={"n_vectors": 5, "fingerprint": "of"},
        software={}, ivf={"batches": [5]}, certificate=None, files=(),
    )  # fmt: skip


def test_an_index_descends_from_all_that_its_parents_contain() -> None:
    first, second = manifest("a", 3, ("c",), ("e", "d")), manifest("b", 7, ("c", "a"), ())
    assert descent_of([first]) == {"generation": 4, "parents": ("a",), "ancestors": ("c", "d", "e")}
    assert descent_of([first, second]) == {
        "generation": 8, "parents": ("a", "b"), "ancestors": ("c", "d", "e")
    }  # fmt: skip


def test_other_keys_are_those_of_the_first_parent_and_no_vector_is_deleted() -> None:
    first = manifest("a")
    made = made_of([first, manifest("b")], {"n_vectors": 9}, "new", ())
    assert (made.build_id, made.input, made.deleted) == ("new", {"n_vectors": 9}, None)
    assert (made.parameters, made.ivf) == (first.parameters, first.ivf)


def test_a_fingerprint_tells_of_the_vectors_before_and_of_the_change() -> None:
    assert fingerprint_of("of", "more") == hashlib.sha256(b"of\nmore\n").hexdigest()
    assert changed_input(manifest("a"), 7, "more") == {
        "n_vectors": 7,
        "fingerprint": fingerprint_of("of", "more"),
    }
