"""Unsafe functions of the reader say what their callers vouch for, private ones too."""

from __future__ import annotations

import re
from pathlib import Path

READER = Path(__file__).parent.parent / "reader"
_UNSAFE = re.compile(r'\s*(?:pub(?:\([a-z]+\))? )?unsafe (?:extern "C" )?fn ([^\s(<]+)')


def silent_functions(text: str) -> list[str]:
    """Return the names of unsafe functions without a section on safety, except those that implement a trait's."""
    lines, silent = text.splitlines(), []
    for number, line in enumerate(lines):
        if (found := _UNSAFE.match(line)) is None:
            continue
        first = number
        while first and lines[first - 1].strip().startswith(("///", "#[", "$(#[")):
            first -= 1
        if not any("# Safety" in above for above in lines[first:number]) and not _is_of_trait(lines[:first]):
            silent.append(found[1])
    return silent


def _is_of_trait(above: list[str]) -> bool:
    """Whether what follows these lines stands in an implementation of a trait."""
    for line in reversed(above):
        if line.startswith(("impl", "unsafe impl")):
            return " for " in line
        if line == "}":
            return False
    return False


def test_every_unsafe_function_has_a_section_on_safety() -> None:
    silent = {
        str(path.relative_to(READER)): names
        for crate in ("core", "capi", "py")
        for path in sorted((READER / crate / "src").rglob("*.rs"))
        if (names := silent_functions(path.read_text()))
    }
    assert not silent


def test_functions_without_it_are_found() -> None:
    section = "/// # Safety\n/// As the caller says.\n"
    assert silent_functions("/// One.\nunsafe fn one() {}\n") == ["one"]
    assert silent_functions(f"{section}#[inline]\npub(super) unsafe fn one<T>() {{}}\n") == []
    assert silent_functions("impl Trait for Type {\n    unsafe fn one() {}\n}\n") == []
    assert silent_functions("impl Type {\n    pub unsafe fn one() {}\n}\n") == ["one"]
    assert silent_functions("impl A for B {\n}\n\nmacro_rules! kernel {\n    unsafe fn $name() {}\n}\n") == [
        "$name"
    ]
    assert silent_functions('pub unsafe extern "C" fn im_one() {}\n') == ["im_one"]
