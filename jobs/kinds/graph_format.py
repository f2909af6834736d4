"""Sentences about the format of a graph: how its vectors are coded and stored, and what that was chosen by."""

from __future__ import annotations

from typing import Any


def format_in_words(of: dict[str, Any], on_page: bool) -> str:
    """Say how vectors are coded, in memory or on the page, and stored on pages."""
    rotation = "" if of["pq_rotation"] == "none" else f" ({of['pq_rotation']})"
    place = " on the page" if on_page else ""
    nodes = "as in the input" if of["node_dtype"] == "same" else of["node_dtype"]
    return f"codes of {of['pq_bytes']} bytes{rotation}{place}, nodes {nodes}, R={of['max_degree']}"


def chosen_format(found: dict[str, Any], on_page: bool) -> str:
    """Say which format was chosen, and what each of those tried reads."""
    tried = [f"{format_in_words(one, on_page)}: {_reads(one, found)}" for one in found["tried"]]
    sample = f"recall@{found['k']} {found['recall']:g} on a sample of {found['vectors']:,} vectors"
    return f"{format_in_words(found['chosen'], on_page)}; page reads at {sample}: {'; '.join(tried)}"


def compared(found: dict[str, Any]) -> str:
    """Say what a build would save, and how to make it if that is worth it."""
    now, chosen = found["now"], found["chosen"]
    sample = f"at recall@{found['k']} {found['recall']:g} on a sample of {found['vectors']:,} of its vectors"
    if found["decoded"]:
        sample += ", decoded from its nodes"
    reads = f"{_reads(chosen, found)} page reads a query"
    on_page = found["codes_on_page"]
    old, new = format_in_words(now, on_page), format_in_words(chosen, on_page)
    if old == new:
        return f"A build would choose the same format, {old}: {reads} {sample}."
    fewer = f" ({found['saves']:.0%} fewer)" if found["worthwhile"] and found["saves"] > 0 else ""
    advice = "That is no gain: keep the index."
    if found["worthwhile"]:
        flags = "--codes-on-page and --search-memory" if on_page else "--search-memory"
        advice = (
            f"Build again with {flags} {found['search_memory']}, without --pq-bytes, --pq-rotation, --node-dtype "
            "and -R."
        )
    return (
        f"A build would choose {new}, in place of {old}: {reads} instead of {_reads(now, found)}{fewer}, {sample}. "
        f"{advice}"
    )


def _reads(tried: dict[str, Any], found: dict[str, Any]) -> str:
    """Page reads of a format that was tried, and its recall if that is not the one that formats are compared at."""
    recall, at = tried["recall"], found["recall"]
    if recall == at:
        return f"{tried['pages_read']:.1f}"
    return f"{tried['pages_read']:.1f} at a recall of {'only ' if recall < at else ''}{recall:.3f}"
